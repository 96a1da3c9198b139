"""Verdicts in tables and charts: tones, markers, marks for papers, and the words of sequential tests.

What counts as better, worse or equal is decided in `results/verdict.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from fedbench.config.words import plural
from fedbench.report.doubts import doubt_of_winner, with_doubt
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT
from fedbench.report.typeset import points
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import Interval
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Bound, Verdict
from fedbench.tasks import Metric

TONES = {
    "above": "better than local training",
    "above-alone": "better by itself, but not after the correction",
    "below": "worse than local training",
    "below-alone": "worse by itself, but not after the correction",
    "open": "open",
    "baseline": "a baseline",
}
"""The meaning of each tone in tables."""
SEQUENTIAL_TONES = {tone: words for tone, words in TONES.items() if not tone.endswith("-alone")}
"""Tones of sequential tests, which have no uncorrected verdict because their intervals are simultaneous."""
LOCAL_WORDS = {
    "better": TONES["above"],
    "worse": TONES["below"],
    "equal": "equal to local training within {margin}",
}
BETTER, WORSE, BEST = "*", "†", "‡"
"""Marks in tables for papers."""


def tone_of(label: str, over_local: Verdict | None) -> str:
    """The tone of a method that competes, or of local training; a verdict with a doubt is open."""
    if label == BASELINE:
        return "baseline"
    sign, alone = (0, 0) if over_local is None else over_local.signs_without_doubt
    if not (sign or alone):
        return "open"
    return ("above" if (sign or alone) > 0 else "below") + ("" if sign else "-alone")


def markers(verdicts: Sequence[Verdict], view: int = 1) -> dict[str, object]:
    """The markers of differences: filled if it is clear, hollow if it is clear by itself only, grey if it is open.

    view: -1 where the differences are those of the other methods.
    """
    states = [(view * sign, view * alone) for sign, alone in (verdict.signs_without_doubt for verdict in verdicts)]
    tones = {1: LIGHT["accent"], -1: LIGHT["alarm"], 0: LIGHT["quiet"]}
    edges = [tones[sign or alone] for sign, alone in states]
    faces = [LIGHT["ground"] if alone and not sign else edge for edge, (sign, alone) in zip(edges, states, strict=True)]
    return {"color": faces, "size": 10, "line": {"color": edges, "width": 2}}


def mark_of(verdict: Verdict) -> str:
    """The mark of a method that is better or worse, in brackets where there is a doubt."""
    mark = {1: BETTER, -1: WORSE}.get(verdict.sign, "")
    return f"({mark})" if mark and verdict.doubt else mark


@dataclass(frozen=True)
class SequentialStanding:
    """The state of a method in a sequential test: its seeds, and both verdicts in words."""

    seeds: int
    against_local: str
    who_is_best: str
    may_be_best: bool


def sequential_verdicts(
    study: Study, test: SequentialTest, label: str
) -> tuple[Verdict | None, Verdict | None, SequentialStanding]:
    """The verdicts on a method against local training, and on the best method against it, and both in words."""
    local, best = _over_local(study, test, label), _behind(study, test, label)
    against = "" if local is None else _against_local(study, test, local)
    tied = test.look > 0 and label in test.candidates[1:]
    return (
        local,
        best,
        SequentialStanding(test.seeds.get(label, 0), against, _who_is_best(study, test, label, best), tied),
    )


def _over_local(study: Study, test: SequentialTest, label: str) -> Verdict | None:
    bound = test.undecided.get(label)
    if label in test.over_local:
        return with_doubt(study, test.over_local[label])
    if bound is None or not bound.seeds:
        return None
    return Verdict(label, BASELINE, bound, is_withheld=("local", label) in test.withheld)


def _behind(study: Study, test: SequentialTest, label: str) -> Verdict | None:
    if label in test.out:
        # Somebody is better; that it is the method that is ahead the most is not certain.
        ahead, bound = test.out[label]
        return with_doubt(study, Verdict(ahead, label, replace(bound, high=inf)))
    if label in test.behind and test.leader is not None:
        return with_doubt(study, Verdict(test.leader, label, -test.behind[label]))
    return None


def _against_local(study: Study, test: SequentialTest, verdict: Verdict) -> str:
    if verdict.relation == "equal":
        return f"equal within {margin_text(study)}"
    if verdict.relation == "open":
        return "given up" if verdict.method in test.given_up else "open"
    return verdict.stated


def _who_is_best(study: Study, test: SequentialTest, label: str, behind: Verdict | None) -> str:
    if label in test.out:
        return "withheld" if behind is not None and behind.doubt else "not the best"
    if label not in test.candidates or not test.look:
        return ""
    margin = margin_text(study)
    if label == test.leader:
        winner = "ahead of all, but in doubt" if doubt_of_winner(study, test) else "best"
        led = {"winner": winner, "tie": "best, tied", "within": f"best or within {margin}", "open": "open"}
        return led.get(test.ending or "", "open")
    return {"tie": f"equal within {margin}", "within": "may be better"}.get(test.ending or "", "open")


def margin_text(study: Study) -> str:
    """`1 point` or `0.05`."""
    margin = (study.plan.stopping_rule or {})["margin"]
    return f"{margin:g}{points(study.metric) if margin != 1 else points(study.metric).rstrip('s')}"


def most_seeds(study: Study) -> str:
    """The most seeds that a sequential test takes, as `12 seeds`."""
    return plural(int((study.plan.stopping_rule or {})["most"]), "seed")


def bound_text(metric: Metric, bound: Interval | Bound) -> str:
    """`+0.2 (-0.1 to +0.5)`."""
    return f"{metric.difference(bound.mean)} ({bound_ends(metric, bound)})"


def bound_ends(metric: Metric, bound: Interval | Bound) -> str:
    """`-0.2 to +0.5`."""
    if not bound.seeds or bound.low is None or bound.high is None:
        return "not compared yet"
    if not isfinite(bound.low):
        return f"at most {metric.difference(bound.high)}"
    return f"{metric.difference(bound.low)} to {metric.difference(bound.high)}"
