"""The ends of every option of every method: it runs, or one line refuses it."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.options import REFUSED, Trials, ends, numbers_of
from fedbench.methods import load, names
from tests.runtime.rounds import MORE


def cases(method: str) -> Iterator[dict[str, Any]]:
    """Options of a run: whole numbers one by one, as 0 epochs leave others nothing to do, and all others at once."""
    fields = load(method).Options.model_fields
    for end in ("smallest", "largest"):
        values = {name: own[end] for name, field in fields.items() if end in (own := ends(field))}
        yield from ({name: value} for name, value in values.items() if isinstance(value, int))
        if together := {name: value for name, value in values.items() if not isinstance(value, int)}:
            yield together


@pytest.mark.parametrize("method", names())
def test_the_ends_of_every_option_run_or_are_refused_in_one_line(method):
    with MethodRuns(method, MORE.get(method, {})) as runs:
        trials = Trials(runs)
        for options in cases(method):
            if trials.outcome(**options) == REFUSED and len(options) > 1:  # what does not go together goes alone
                for name, value in options.items():
                    trials.outcome(**{name: value})


def test_every_number_has_an_end():
    """Else this file would miss it."""
    missed = {
        f"{method}.{name}"
        for method in names()
        for name, field in load(method).Options.model_fields.items()
        if any(numbers_of(field.annotation, [])) and "smallest" not in ends(field)
    }
    assert missed == set()
