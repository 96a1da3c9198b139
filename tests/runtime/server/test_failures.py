"""Failures of clients that end a run."""

import pytest

from fedbench.errors import RunError
from fedbench.runtime.exchange import Report
from fedbench.runtime.server.failures import refuse_failing_half, refuse_untrained


def reports(*causes: str) -> list[Report]:
    return [Report(i, failure=f"{why} broke" if why else None, cause=why) for i, why in enumerate(causes)]


def test_half_that_fail_alike_end_a_run_and_fewer_or_others_do_not():
    with pytest.raises(RunError, match="seed 3, round 1: 2 of 4 participants fail in the same way: a broke"):
        refuse_failing_half(3, reports("a", "", "a", ""))
    refuse_failing_half(3, reports("a", "", "a", "", ""))
    refuse_failing_half(3, reports("a", "b", "c", "d"))
    refuse_failing_half(3, reports("a"))


def test_a_run_in_which_most_clients_never_trained_is_no_result():
    with pytest.raises(RunError, match=r"seed 0: the run is no result: 2 of 3 clients .* the first, client 1: nan"):
        refuse_untrained(0, {0: "", 1: "nan", 2: "nan"})
    refuse_untrained(0, {0: "", 1: "nan"})
