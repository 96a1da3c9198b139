"""What a study will cost, before it starts: points, runs, gradient steps and hours."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

import numpy as np

from fedbench.config.tuning import LOOKS
from fedbench.config.words import plural
from fedbench.results.plan import point_name
from fedbench.results.quantities import duration
from fedbench.results.sequential_test import Rules, judge
from fedbench.results.tables import BASELINE
from fedbench.studies.timing import PROCESS, LeftRuns, Room, span_of
from fedbench.studies.tuning_remarks import not_tuned, turned_rates
from fedbench.studies.tuning_study import TuningStudy

TYPICAL = 2.0
"""Typical standard deviation, in points of accuracy, of methods' means, and of paired differences over seeds."""
SIMULATED, ROTATIONS = 20, 300
"""Simulated sequential tests behind an expectation, and rotations in each, fewer than for verdicts."""

EXACT = 1.25
"""Ratio of the largest to the smallest estimate up to which one number says it."""
USUAL_LOOKS = 3
"""Looks that a study usually adds to the first."""
MOST_LISTED = 24
"""Points of a method that are listed one by one."""


def outlook(
    studies: Sequence[TuningStudy],
    trials: int | None = None,
    hours: float | None = None,
    remarks: Iterable[str] | None = None,
) -> Iterator[str]:
    """Lines about a planned study: points, runs, and estimated time.

    trials, hours: as in `cost`. remarks: what its check has said, if it was checked. Raises ConfigError.
    """
    for study in studies:
        inside = f"{study.setting}: " if study.setting else ""
        for method in study.compared:
            keys = ", ".join(study.points[method.label][0]) or ("what is set" if method.held else "its defaults")
            lent = method.space.lent if method.space else ""
            whose = f", the space of its base method {lent}" if lent else ""
            yield f"{inside}{method.label}: {plural(method.tries, 'candidate')} of {keys}{whose}"
            points = [point for point in study.points[method.label] if point]
            yield from (f"  {point_name(point)}" for point in points[:MOST_LISTED])
            if len(points) > MOST_LISTED:
                yield f"  and {len(points) - MOST_LISTED} more"
    turned = [line for study in studies for line in turned_rates(study.compared)]
    lines = [line for study in studies for line in _lines(study)] if remarks is None else [*turned, *remarks]
    yield from dict.fromkeys(lines)
    yield from left_out(studies)
    yield from cost(studies, trials, hours)


def _lines(study: TuningStudy) -> Iterator[str]:
    yield from (
        *not_tuned(study.compared),
        *turned_rates(study.compared),
        *study.plan.tuning_doubts,
        *study.unused_values(),
    )


def left_out(studies: Sequence[TuningStudy]) -> Iterator[str]:
    """Lines about the invalid points of studies, which are not run."""
    for study in studies:
        inside = f"{study.setting}: " if study.setting else ""
        yield from (f"{inside}left out: {line}" for line in study.plan.left_out())


def cost(studies: Sequence[TuningStudy], trials: int | None = None, hours: float | None = None) -> Iterator[str]:
    """Runs that are left, their gradient steps and estimated time, and what a sequential test adds to these.

    trials: the number of runs side by side, None for as many as fit. hours: those after which no seeds are
    added. Raises ConfigError.
    """
    room, left = Room.of(studies, trials), [LeftRuns(study) for study in studies]
    span, done = span_of(left, room), len(set[str]().union(*(own.done for own in left)))
    sequential = [own for own in left if own.study.plan.stopping_rule is not None]
    first = f" for the first {len(sequential[0].study.config.seeds)} seeds" if sequential else ""
    noun, verb = ("run", "is") if span.runs == (1, 1) else ("runs", "are")
    known = f" {verb} left, {done:,} done" if done else ""
    runs = range_text(*span.runs, lambda count: f"{count:,.0f}")
    steps = range_text(*span.steps, lambda steps: f"{float(f'{steps:.2g}'):,.0f}")
    yield f"{runs} {noun}{known}{first}, {steps} gradient steps: about {duration_range(*span.seconds)}, {room}"
    yield from _cost_of_looks(sequential, room, hours)


def time_left_line(studies: Sequence[TuningStudy], trials: int | None) -> str:
    """How long studies in progress will take, by the time that their runs took so far."""
    room, left = Room.of(studies, trials), [LeftRuns(study) for study in studies]
    span = span_of(left, room)
    runs = range_text(*span.runs, lambda count: f"{count:,.0f}")
    until = " up to this look" if any(own.study.plan.stopping_rule and own.begun for own in left) else ""
    return f"about {duration_range(*span.seconds)} left for {runs} {'run' if span.runs == (1, 1) else 'runs'}{until}"


def duration_range(least: float, most: float) -> str:
    """`50 s`, or `50 s to 12 min` if the two are further apart than an estimate is exact."""
    return range_text(least, most, duration) if most > EXACT * least else duration((least + most) / 2)


def range_text(least: float, most: float, text: Callable[[float], str]) -> str:
    """`3`, or `3 to 5`."""
    low, high = text(least), text(most)
    return low if low == high else f"{low} to {high}"


def _cost_of_looks(sequential: Sequence[LeftRuns], room: Room, hours: float | None) -> Iterator[str]:
    """How much longer studies take that add seeds until they are decided."""
    if not sequential:
        return
    rule, first = sequential[0].study.plan.stopping_rule, len(sequential[0].study.config.seeds)
    if rule is None or rule["most"] <= first:
        return
    looks, most = sum(first < look <= rule["most"] for look in LOOKS), list[float]()
    for own in sequential:
        count, (_, slowest) = _methods_of(own)
        most += [slowest] * round(count * (rule["most"] - first))
    ending = f"at most {duration(room.seconds(most, PROCESS[1], looks))} more, for {rule['most']:.0f} seeds"
    limit = "" if hours is None else f"; no look begins after {duration(3600 * hours)}"
    yield f"until it is decided, {_usual_time(sequential, room, min(looks, USUAL_LOOKS))}{ending}{limit}"


def _usual_time(sequential: Sequence[LeftRuns], room: Room, looks: int) -> str:
    """Empty for scores that are no share of 1: how far methods differ in them depends on their unit."""
    if not all(own.metric.share for own in sequential):
        return ""
    low, high = list[float](), list[float]()
    for own in sequential:
        rule, (count, (least, slowest)) = own.study.plan.stopping_rule or {}, _methods_of(own)
        few, many = (
            runs - count * len(own.study.config.seeds)
            for runs in expected_runs(count, rule["margin"], int(rule["most"]))
        )
        low += [least] * max(0, round(few))
        high += [slowest] * max(0, round(many))
    times = (room.seconds(runs, start, looks) for runs, start in zip((low, high), PROCESS, strict=True))
    return f"usually {duration_range(*times)} more if methods differ by some {TYPICAL:g} points; "


def _methods_of(own: LeftRuns) -> tuple[int, tuple[float, float]]:
    """The number of methods that are compared, and the seconds of a run at least and at most, mean over them."""
    methods = [method for method in own.study.compared if method.label not in own.study.references]
    runs = [own.run(method, own.study.points[method.label][0]) for method in methods]
    return len(methods), (fmean(run.least for run in runs), fmean(run.most for run in runs))


def expected_runs(methods: int, margin: float, most: int) -> tuple[float, float]:
    """Final runs of a sequential test, the first and the last tenth of simulated ones cut off.

    margin: points of accuracy. methods: with local training. Their means, and their paired differences over seeds,
    vary as is typical.
    """
    draw, used = np.random.default_rng(0), []
    names = [BASELINE, *map(str, range(methods - 1))]
    for _ in range(SIMULATED):
        scores = draw.normal(0, TYPICAL, methods) + draw.normal(0, TYPICAL / np.sqrt(2), (most, methods))
        decision = judge(dict(zip(names, scores.T.tolist(), strict=True)), Rules(margin, most), rotations=ROTATIONS)
        used.append(sum(decision.seeds.values()))
    low, high = np.percentile(used, (10, 90))
    return float(low), float(high)
