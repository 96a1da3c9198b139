"""A check, what comes of it, and the table of many."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Generic, Literal, TypeVar

from fedbench.errors import ConfigError, RunError

Subject = Literal["method", "model", "data"]
Outcome = Literal["passed", "failed", "does not apply"]
WIDTH = 15
"""Letters of the longest name of a check."""
SubjectT = TypeVar("SubjectT")
SubjectT_contra = TypeVar("SubjectT_contra", contravariant=True)


class CheckFailure(AssertionError):
    """What a check finds wrong, in one line: what, where, and the remedy."""


class DoesNotApply(Exception):
    """Why a check has nothing to ask of its subject, in one line."""


@dataclass(frozen=True)
class CheckResult:
    """What came of a check. line: of a failed one what is wrong and the remedy, else what was seen, or why not."""

    subject: Subject
    name: str
    outcome: Outcome
    line: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Check(Generic[SubjectT_contra]):
    """One question to a method, a model or data. proves: what is true if it passes.

    function: returns a line of what it saw, or an empty one; raises CheckFailure or DoesNotApply.
    """

    name: str
    proves: str
    applies_to: Subject
    function: Callable[[SubjectT_contra], str]

    def __call__(self, subject: SubjectT_contra) -> CheckResult:
        """The result; an error of the subject's code is a failure."""
        begun = time.perf_counter()
        try:
            outcome, line = "passed", self.function(subject) or self.proves
        except DoesNotApply as why:
            outcome, line = "does not apply", str(why)
        except (CheckFailure, ConfigError) as found:
            outcome, line = "failed", str(found)
        except Exception as error:
            outcome, line = "failed", str(RunError.of(error))
        return CheckResult(self.applies_to, self.name, outcome, line, time.perf_counter() - begun)  # type: ignore[arg-type]


@dataclass(frozen=True)
class CheckReport:
    """The results of checks, under a title such as `method mine:Mine, data digits`; printed as a table."""

    title: str
    results: Sequence[CheckResult]

    @property
    def failed(self) -> list[CheckResult]:
        return [result for result in self.results if result.outcome == "failed"]

    def __str__(self) -> str:
        return "\n".join([self.title, *map(row_of, self.results), self.count])

    __repr__ = __str__

    @property
    def count(self) -> str:
        """How many passed, failed and did not apply, in words."""
        outcomes: tuple[Outcome, ...] = ("passed", "failed", "does not apply")
        counts = {word: sum(result.outcome == word for result in self.results) for word in outcomes}
        parts = [f"{counts['passed']} passed", f"{counts['failed']} failed"]
        parts += [f"{counts['does not apply']} did not apply"] if counts["does not apply"] else []
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        colours = {"passed": "#1a7f37", "failed": "#cf222e", "does not apply": "#6e7781"}
        rows = "".join(
            f'<tr><td>{result.subject}</td><td style="text-align:left">{escape(result.name)}</td>'
            f'<td style="text-align:left;color:{colours[result.outcome]}">{result.outcome}</td>'
            f'<td style="text-align:left">{escape(result.line)}</td></tr>'
            for result in self.results
        )
        head = "<tr><th></th><th>check</th><th>outcome</th><th>line</th></tr>"
        return f"<table><caption>{escape(self.title)}: {self.count}</caption>{head}{rows}</table>"

    def as_json(self) -> dict[str, Any]:
        return {"title": self.title, "checks": [asdict(result) for result in self.results]}


def row_of(result: CheckResult) -> str:
    """A line of the printed table."""
    return f"{result.subject:<6}  {result.name:<{WIDTH}}  {result.outcome:<14}  {result.line}"


def results_of(checks: Iterable[Check[SubjectT]], subject: SubjectT) -> Iterator[CheckResult]:
    """The result of every check, as it comes."""
    for check in checks:
        yield check(subject)
