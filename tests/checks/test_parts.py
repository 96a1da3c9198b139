"""What is asked of a model's parts, and of which methods it is not. Wrong methods are in test_methods.py."""

import pytest

from fedbench.checks.check import DoesNotApply
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.parts import frozen_entries_stay, private_entries_are_read, statistics_are_shared


@pytest.mark.parametrize(
    ("name", "ask", "why"),
    [
        ("fedpac", private_entries_are_read, "clients also send statistics of their features, and their head"),
        ("pfedfda", private_entries_are_read, "private entries are in fields of its own"),
        ("centralized", statistics_are_shared, "no client trains a model of its own"),
    ],
)
def test_it_is_not_asked_where_a_method_has_no_such_part(name, ask, why):
    with MethodRuns(name) as runs, pytest.raises(DoesNotApply, match=why):
        ask(runs)


def test_a_frozen_head_stays_and_statistics_are_shared():
    with MethodRuns("fedbabu") as runs:
        assert frozen_entries_stay(runs) == "130 numbers stay"
        assert statistics_are_shared(runs) == "24 numbers are shared"
