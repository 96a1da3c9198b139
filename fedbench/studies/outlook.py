"""What a study will cost, before it starts: points, runs, gradient steps and hours."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedbench.config.words import plural
from fedbench.processor import cores
from fedbench.results.plan import point_name
from fedbench.results.quantities import duration
from fedbench.results.race import Rules, judge
from fedbench.results.tables import BASELINE, REFERENCES
from fedbench.studies.cost import Cost, hours_of
from fedbench.studies.tuning_study import TuningStudy

TYPICAL = 2.0
"""Typical standard deviation, in points of accuracy, of methods' means, and of paired differences over seeds."""
SIMULATED, ROTATIONS = 20, 300
"""Simulated races behind an expectation, and rotations in each, fewer than for verdicts."""

MOST_LISTED = 24
"""Points of a method that are listed one by one."""


def outlook(studies: Sequence[TuningStudy]) -> Iterator[str]:
    """Lines about a planned study: points, runs, and estimated time."""
    for study in studies:
        inside = f"{study.setting}: " if study.setting else ""
        for method in study.compared:
            keys = ", ".join(study.points[method.label][0]) or ("what is set" if method.held else "its defaults")
            lent = method.space.lent if method.space else ""
            whose = f", the space of its base method {lent}" if lent else ""
            yield f"{inside}{method.label}: {plural(method.tries, 'point')} of {keys}{whose}"
            points = [point for point in study.points[method.label] if point]
            yield from (f"  {point_name(point)}" for point in points[:MOST_LISTED])
            if len(points) > MOST_LISTED:
                yield f"  and {len(points) - MOST_LISTED} more"
    yield from dict.fromkeys(line for study in studies for line in _lines(study))
    yield from left_out(studies)
    yield from cost(studies)


def _lines(study: TuningStudy) -> Iterator[str]:
    yield from (*study.not_tuned(), *study.turned_rates(), *study.plan.tuning_doubts, *study.unused_values())


def left_out(studies: Sequence[TuningStudy]) -> Iterator[str]:
    """Lines about the invalid points of studies, which are not run."""
    for study in studies:
        inside = f"{study.setting}: " if study.setting else ""
        yield from (f"{inside}left out: {line}" for line in study.plan.left_out())


def cost(studies: Sequence[TuningStudy]) -> Iterator[str]:
    """Runs, their gradient steps and estimated time, and what a race adds to these. Raises ConfigError."""
    runs = [Cost.of(config) for study in studies for config in study.run_configs()]
    steps, seconds = sum(run.steps for run in runs), sum(run.seconds for run in runs) / cores()
    racing = [study for study in studies if study.plan.race is not None]
    first = f" for the first {len(racing[0].config.seeds)} seeds" if racing else ""
    yield (
        f"{plural(len(runs), 'run')}{first}, {float(f'{steps:.2g}'):,.0f} gradient steps: "
        f"about {duration(seconds)}, one run per core"
    )
    yield from _cost_of_races(racing)


def _cost_of_races(studies: Sequence[TuningStudy]) -> Iterator[str]:
    """How much longer studies take that add seeds until they are decided."""
    if not studies:
        return
    first, race = len(studies[0].config.seeds), studies[0].plan.race or {}
    low = high = most = 0.0
    for study in studies:
        racing = [method for method in study.compared if method.label not in REFERENCES]
        finals = [method.config(study.config, study.points[method.label][0]) for method in racing]
        seconds = 3600 * hours_of(finals) / max(1, len(racing))
        most += seconds * len(racing) * (race["most"] - first)
        few, many = expected_runs(len(racing), race["margin"], int(race["most"]))
        low += seconds * max(0.0, few - first * len(racing))
        high += seconds * max(0.0, many - first * len(racing))
    yield (
        f"until it is decided, usually {duration(low)} to {duration(high)} more if methods differ by some {TYPICAL:g} "
        f"points; at most {duration(most)} more, for {race['most']:.0f} seeds; plus the neighbours of the best points"
    )


def expected_runs(methods: int, margin: float, most: int) -> tuple[float, float]:
    """Final runs of a race, the first and the last tenth of simulated ones cut off. margin: points of accuracy.

    methods: with local training. Their means, and their paired differences over seeds, vary as is typical.
    """
    draw, used = np.random.default_rng(0), []
    names = [BASELINE, *map(str, range(methods - 1))]
    for _ in range(SIMULATED):
        scores = draw.normal(0, TYPICAL, methods) + draw.normal(0, TYPICAL / np.sqrt(2), (most, methods))
        found = judge(dict(zip(names, scores.T.tolist(), strict=True)), Rules(margin, most), rotations=ROTATIONS)
        used.append(sum(found.seeds.values()))
    low, high = np.percentile(used, (10, 90))
    return float(low), float(high)
