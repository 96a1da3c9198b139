"""Checks of a method as cases of pytest, one a check.

from fedbench.testing import method_checks

@pytest.mark.parametrize("check", method_checks(Mine))
def test_mine(check):
    check()
"""

from collections.abc import Iterator
from typing import Any

from fedbench.checks.check import Check
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.methods import METHOD_CHECKS
from fedbench.checks.problem import trajectory
from fedbench.methods.base import Method


class MethodCase:
    """A check of a method, to be called by a test. Cases of a method share its runs."""

    def __init__(self, check: Check[MethodRuns], runs: "SharedRuns") -> None:
        self.check, self._runs = check, runs

    def __call__(self) -> None:
        """Raises AssertionError if the check fails; skips the test if it does not apply."""
        import pytest

        result = self.check(self._runs.get())
        if result.outcome == "does not apply":
            pytest.skip(result.line)
        assert result.outcome == "passed", result.line

    def __repr__(self) -> str:
        return self.check.name


class SharedRuns:
    """The runs of a method, which begin when the first case asks for them."""

    def __init__(self, method: str | type[Method], options: dict[str, Any]) -> None:
        self._given, self._made = (method, options), list[MethodRuns]()

    def get(self) -> MethodRuns:
        if not self._made:
            self._made.append(MethodRuns(*self._given))
        return self._made[0]


def method_checks(method: str | type[Method], **options: Any) -> list[Any]:
    """The checks of a method with these options, for `pytest.mark.parametrize`."""
    return list(_cases(SharedRuns(method, options)))


def numbers_by_hand(method: str | type[Method], **options: Any) -> list[tuple[Any, ...]]:
    """What two clients receive, train and send in three rounds on two parameters (`fedbench.checks.problem`)."""
    return [tuple(row) for row in trajectory(method, options)]


def _cases(runs: SharedRuns) -> Iterator[Any]:
    import pytest

    for check in METHOD_CHECKS:
        yield pytest.param(MethodCase(check, runs), id=check.name.replace(" ", "-"))
