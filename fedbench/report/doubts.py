"""Doubts about verdicts: why a method that a test finds better may not be, and which numbers are missing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fedbench.config.words import plural
from fedbench.report.study import Study
from fedbench.report.typeset import join_words
from fedbench.results.estimators import SAMPLES
from fedbench.results.plan import Plan
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.verdict import Verdict

AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def with_doubt(study: Study, verdict: AnyVerdict) -> AnyVerdict:
    """The verdict with the doubt about it, if it is decided at least before the correction."""
    if {verdict.relation, verdict.relation_alone} <= {"open", "withheld"}:
        return verdict
    return replace(verdict, doubt=doubts(study, verdict.method, verdict.against, verdict.interval.mean))


def doubts(study: Study, method: str, other: str, gain: float) -> str:
    """Why no winner can be named although one method is ahead.

    Scores differ in kind, seeds or rounds are missing, tuning was unequal, or the loser may not be at its best.
    """
    plan = study.plan
    ours, theirs = (study.estimators.get(label, SAMPLES) for label in (method, other))
    if ours != theirs:
        return f"{method} is scored by the mean over {ours} and {other} by the mean over {theirs}"
    if gaps := next((line for label in (method, other) if (line := gaps_of(study, label))), ""):
        return gaps
    for label in (method, other):
        if study.summaries[label].get("degenerate"):
            return f"{label} is degenerate"
    if not plan.even(method, other):
        count = plural(plan.budget(method), "candidate")
        return f"{method} was tuned over {count} and {other} over {plan.budget(other)}"
    loser = other if gain >= 0 else method
    return not_bracketed(plan, loser)


def not_bracketed(plan: Plan, label: str) -> str:
    """Why a method may have a better point than its best one; empty if its neighbours on both sides were tried."""
    keys = plan.open_keys(label)
    if not keys or label not in plan.choices:
        return ""
    chosen = settings({key: plan.choices[label][key] for key in keys})
    if plan.ends.get(label):
        return f"the best candidate of {label} is at the edge of its search range ({chosen})"
    return f"not all neighbours of the best candidate of {label} were tried ({chosen})"


def doubts_of_lead(study: Study, first: str, rivals: Sequence[str]) -> str:
    """Why a method that is ahead of all rivals may not be the best."""
    if study.failed_methods:
        return f"{join_words(study.failed_methods)} failed"
    return next((doubt for rival in rivals if (doubt := doubts(study, first, rival, 1.0))), "")


def doubt_of_winner(study: Study, test: SequentialTest) -> str:
    """Why the winner of a sequential test, or who is tied with it, may not be the best.

    Methods that lack a seed take no part in the test, and may be better.
    """
    others = [label for label in study.plan.labels() if label not in (test.leader, *study.plan.references)]
    return doubts_of_lead(study, test.leader or "", others)


def gaps_of(study: Study, label: str) -> str:
    """Which final runs are missing in a method's score; empty if none."""
    if failed := study.failed_seeds(label):
        known = len(study.last_rows(label)) if label in study.metrics else 0
        return f"{len(failed)} of {plural(known + len(failed), 'seed')} of {label} failed"
    return "" if study.summaries[label]["complete"] else f"the runs of {label} are not complete"


def settings(values: dict[str, Any]) -> str:
    """`{"tau": 0.3, "beta": 5}` -> `tau = 0.3 and beta = 5`."""
    parts = [f"{key.removeprefix('method.')} = {'none' if value is None else value}" for key, value in values.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
