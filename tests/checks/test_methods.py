"""Wrong methods are caught by the check that is there for it, and a right one passes all of them."""

import pytest

from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.methods import METHOD_CHECKS
from tests.checks.wrong_methods import WRONG, Right, SetsACopy

BY_NAME = {check.name: check for check in METHOD_CHECKS}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_method_is_caught_by_its_check(kind):
    with MethodRuns(kind) as runs:
        result = BY_NAME[kind.found_by](runs)
        assert result.outcome == "failed", result
        assert kind.words in result.line
        assert "\n" not in result.line


def test_a_right_method_passes_all():
    with MethodRuns(Right) as runs:
        results = [check(runs) for check in METHOD_CHECKS]
    assert [result for result in results if result.outcome == "failed"] == []
    assert [result.name for result in results if result.outcome == "does not apply"] == ["private", "read", "frozen"]


def test_a_field_of_the_state_that_is_never_set_is_named():
    with MethodRuns(SetsACopy) as runs:
        result = BY_NAME["kept"](runs)
    assert result.line == "clients keep no fields of their own; never set with these options: last"
