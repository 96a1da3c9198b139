"""Whether the verdicts of `fedbench compare --until-decided` hold, by simulation of studies with a known truth.

    python benchmarks/verdicts.py [--studies 2000] [--methods 7 12 20] [--bar 1 2 3 4 5 6 7] [--json FILE]

A score is the method's true mean, plus what all methods share in a seed, plus the method's own noise, rounded to a
multiple of 1 / test images. In bar 7 it is made of outcomes on test rows
that seeds share (`test_rows.py`). One bar after the other; exits with 1 if one is missed. In points throughout.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.test_rows import EVEN, HOSPITALS, Design, Population
from fedbench.results.outcomes import MetricOutcomes
from fedbench.results.rotations import ROTATIONS, RotatedScores
from fedbench.results.sample_error import Deviations, deviations
from fedbench.results.sequential_test import Rules, SequentialTest, judge
from fedbench.results.statistics import Interval
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Bound

DIGITS = (92.5, 96.0, 96.0, 95.9, 95.8, 95.7, 95.6, 95.3, 95.3, 94.7, 93.8, 92.8)
"""Means of local training and eleven methods on the digits (docs/results.md)."""
CIFAR = (75.1, 76.1, 76.0, 75.9, 75.5, 75.2, 74.8, 74.3, 72.9, 67.3, 36.3, 32.1)
OUTLIER, OUTLIER_SHARE = 8.0, 0.1


@dataclass(frozen=True)
class Truth:
    """True means, local training first; spread: standard deviation of a difference over seeds.

    outlying: local training is 8 points worse in one seed of ten, at `random` or in one of every `ten`; means include
    that.
    """

    means: tuple[float, ...]
    spread: float = 1.7
    shared: float = 1.5
    images: int = 360
    outlying: Literal["", "random", "ten"] = ""

    def scores(self, seeds: int, draw: np.random.Generator) -> np.ndarray:
        """`[methods, seeds]`."""
        found = np.array(self.means)[:, None] + draw.normal(0, self.shared, seeds)
        found += draw.normal(0, self.spread / np.sqrt(2), found.shape)
        if self.outlying:
            hit = draw.random(seeds) < OUTLIER_SHARE
            if self.outlying == "ten":
                hit = np.arange(seeds) % 10 == np.repeat(draw.integers(10, size=-(-seeds // 10)), 10)[:seeds]
            found[0] += OUTLIER * (OUTLIER_SHARE - hit)
        return np.round(found * self.images / 100) * 100 / self.images


def digits(means: tuple[float, ...] = DIGITS) -> Truth:
    return Truth(means)


def cifar(means: tuple[float, ...] = CIFAR) -> Truth:
    return Truth(means, 2.3, 4.5, 800)


def names(methods: int) -> list[str]:
    return [BASELINE, *(f"method{number}" for number in range(1, methods))]


def simulated_tests(truth: Truth, rules: Rules, studies: int, rotations: int) -> Iterator[SequentialTest]:
    """Sequential tests of simulated studies."""
    labels = names(len(truth.means))
    for study in range(studies):
        scores = truth.scores(rules.most, np.random.default_rng([study, len(labels), rules.most]))
        yield judge(dict(zip(labels, scores, strict=True)), rules, rotations=rotations)


def marks(test: SequentialTest, truth: Truth, margin: float) -> set[str]:
    """What is false in a sequential test, and how it ended. Of several best methods, the last counts as the best."""
    mean = dict(zip(names(len(truth.means)), truth.means, strict=True))
    best = max(reversed(mean), key=lambda method: mean[method])
    found: set[str] = {test.ending or "unfinished"}
    for method, told in test.over_local.items():
        gain = mean[method] - mean[BASELINE]
        if {"better": gain <= 0, "worse": gain >= 0, "equal": abs(gain) >= margin - 1e-9}[told.relation]:
            found |= {"false over local", f"false {told.relation}"}
        if not _holds(told.interval, gain):
            found.add("false interval")
    if any(bound.seeds and not _holds(bound, mean[m] - mean[BASELINE]) for m, bound in test.undecided.items()):
        found.add("false interval")
    if best in test.out:
        found.add("best out")
    if any(mean[method] == mean[best] for method in test.out):
        found.add("a best one out")
    if test.leader is not None and test.ending in ("tie", "within"):
        gaps = [mean[method] - mean[test.leader] for method in test.candidates]
        least = min(gaps) if test.ending == "tie" else 0
        if max(gaps) >= margin - 1e-9 or least <= -margin + 1e-9:
            found.add(f"false {test.ending}")
    if any(not _holds(bound, mean[m] - mean[test.leader or m]) for m, bound in test.behind.items()):
        found.add("false interval of the best")
    if found & {"false over local", "best out", "false tie", "false within"}:
        found.add("any false verdict")
    if found & {"any false verdict", "false interval", "false interval of the best"}:
        found.add("any false")
    if test.withheld:
        found.add("withheld")
    return found


def _holds(bound: Bound | Interval, truth: float) -> bool:
    assert bound.low is not None
    assert bound.high is not None
    return bound.low - 1e-9 <= truth <= bound.high + 1e-9


@dataclass(frozen=True)
class Rates:
    """Shares of studies in % by what happened, runs of a study, and the share of methods told from local, in %."""

    studies: int
    shares: dict[str, float]
    runs: float
    told: float

    def __getitem__(self, name: str) -> float:
        return self.shares.get(name, 0.0)


def rates(truth: Truth, margin: float, most: int, studies: int, rotations: int) -> Rates:
    seen, runs, told = Counter[str](), 0, 0
    for test in simulated_tests(truth, Rules(margin, most), studies, rotations):
        seen.update(marks(test, truth, margin))
        runs += sum(test.seeds.values())
        told += len(test.over_local)
    shares = {name: 100 * count / studies for name, count in sorted(seen.items())}
    return Rates(studies, shares, runs / studies, 100 * told / studies / (len(truth.means) - 1))


@dataclass(frozen=True)
class Line:
    """A measured number beside what is allowed; None where there is no bar."""

    bar: int
    what: str
    measured: float
    allowed: float | None
    at_least: bool = False
    more: Rates | None = None

    @property
    def met(self) -> bool:
        if self.allowed is None:
            return True
        return bool(self.measured >= self.allowed if self.at_least else self.measured <= self.allowed)

    def __str__(self) -> str:
        allowed, met = "", ""
        if self.allowed is not None:
            allowed, met = f"{'>=' if self.at_least else '<='} {self.allowed:g}", "yes" if self.met else "NO"
        text = f"| {self.bar} | {self.what} | {self.measured:.1f} | {allowed} | {met} |"
        if self.more is None:
            return text
        rest = ", ".join(f"{name} {share:.1f}" for name, share in self.more.shares.items())
        return f"{text} {self.more.studies} studies, {self.more.runs:.0f} runs, told {self.more.told:.0f}: {rest} |"


def equal_truth(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    for count in methods:
        for most in (40, 90):
            found = rates(digits((90.0,) * count), 1.0, most, studies, rotations)
            where = f"{count} equal methods, at most {most} seeds:"
            yield Line(1, f"{where} false over local", found["false over local"], 3.2, more=found)
            yield Line(1, f"{where} best out", found["best out"], 3.2)
            yield Line(1, f"{where} any false statement", found["any false"], 6.0)
        for lead, best in ((3.0, 2), (0.3, 1)):
            found = rates(digits((*(90.0,) * (count - best), *(90.0 + lead,) * best)), 1.0, 40, studies, rotations)
            where = f"{count} methods, {best} best by {lead:g}, at most 40 seeds:"
            if best > 1:
                yield Line(1, f"{where} winner", found["winner"], 5.0, more=found)
            yield Line(1, f"{where} best out", found["best out"], 3.2, more=None if best > 1 else found)


def at_the_margin(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    for count in methods:
        for margin, name, means in (
            (2.0, "all 2 points above local", (90.0, *(92.0,) * (count - 1))),
            (2.0, "the best 2 points above all others", (*(90.0,) * (count - 1), 92.0)),
        ):
            found = rates(digits(means), margin, 40, studies, rotations)
            where = f"{count} methods, {name}, margin 2:"
            yield Line(2, f"{where} false equal to local", found["false equal"], 3.2, more=found)
            yield Line(2, f"{where} false tie or within", found["false tie"] + found["false within"], 3.2)
            yield Line(2, f"{where} any false statement", found["any false"], 6.0)


def one_best(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    for lead, least, most in ((2.0, 95.0, 260.0), (3.0, 99.0, 220.0)):
        found = rates(digits((*(90.0,) * 11, 90.0 + lead)), 1.0, 40, studies, rotations)
        yield Line(3, f"12 methods, one best by {lead:g}: winner", found["winner"], least, at_least=True, more=found)
        yield Line(3, f"12 methods, one best by {lead:g}: runs", found.runs, most)
        yield Line(3, f"12 methods, one best by {lead:g}: any false statement", found["any false"], 6.0)


def real_means(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    for name, truth in (("digits", digits()), ("CIFAR-10", cifar())):
        for margin, least in ((2.0, 95.0), (1.0, 70.0)):
            found = rates(truth, margin, 40, studies, rotations)
            answered, bar = found["winner"] + found["tie"] + found["within"], least if name == "digits" else None
            yield Line(4, f"{name}, margin {margin:g}: answered", answered, bar, at_least=True, more=found)
            yield Line(4, f"{name}, margin {margin:g}: any false statement", found["any false"], 6.0)


def outlying_seeds(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    rules: dict[Literal["ten", "random"], str] = {
        "ten": "one of every ten seeds",
        "random": "every seed with probability 0.1",
    }
    for outlying, place in rules.items():
        for name, local in (("equal in the mean", 90.0), ("equal but for them", 90.0 - OUTLIER * OUTLIER_SHARE)):
            truth = Truth((local, *(90.0,) * 11), outlying=outlying)
            found = rates(truth, 1.0, 40, studies, rotations)
            where = f"12 methods, local 8 points worse in {place}, {name}:"
            yield Line(5, f"{where} false verdict on local", found["false over local"], 5.0, more=found)
            yield Line(5, f"{where} best out", found["best out"], 5.0)


def two_seeds(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    truth = Truth((90.0,) * 12, images=800)
    for seeds in (2, 3, 10):
        told = np.zeros(3)
        for study in range(studies):
            scores = truth.scores(seeds, np.random.default_rng([study, 6]))
            rotated, best = RotatedScores(scores.T, rotations), int(scores.mean(1).argmax())
            p = [rotated.adjusted_p([i for i in range(12) if i != minus], minus).min() for minus in (0, best)]
            test = judge(dict(zip(names(12), scores, strict=True)), Rules(1.0, 40), rotations=rotations)
            told += [p[0] < 0.05, min(p) < 0.05, bool(test.over_local or test.out)]
        where = f"12 equal methods, {seeds} seeds, 800 test images:"
        local, any_, sequential = 100 * told / studies
        bar = 5.0 if seeds == 2 else None
        yield Line(6, f"{where} somebody told from local by p", local, bar)
        yield Line(6, f"{where} somebody told from local or the best by p", any_, bar)
        yield Line(6, f"{where} somebody told by a sequential test", sequential, bar)


def shared_rows(methods: list[int], studies: int, rotations: int) -> Iterator[Line]:
    """Seven equal methods on test rows that all seeds share, judged over seeds alone and over test samples too.

    A statement is false if it does not hold on new rows. Opposite: on one half of the rows a method is told better, on
    the other worse; runs are the same.
    """
    for name, sizes in (("116 ... 6", HOSPITALS), ("10 of 36", EVEN)):
        for spread in (0.0, 1.0, 2.0):
            wrong, opposite = np.zeros(2), np.zeros(2)
            for study in range(studies):
                population = Population(Design(sizes, spread), 7, np.random.default_rng([study, 7, len(sizes)]))
                seeds = [population.seed() for _ in range(27)]
                for half in (None, 0, 1):
                    told = [_told(seeds, half, over_samples, rotations) for over_samples in (False, True)]
                    if half is None:
                        wrong += [any(test) for test in told]
                    elif half == 0:
                        first = told
                    else:
                        both = [[a * b for a, b in zip(*pair, strict=True)] for pair in zip(first, told, strict=True)]
                        opposite += [min(test) < 0 for test in both]
            for place, over in enumerate(("seeds alone", "seeds and samples")):
                where = f"7 equal methods, shared rows ({name}), spread {spread:g}, {over}:"
                bar = 5.0 if place else None
                yield Line(7, f"{where} false verdict over local", 100 * wrong[place] / studies, bar)
                yield Line(7, f"{where} opposite on two halves", 100 * opposite[place] / studies, bar)


def _told(seeds: Sequence[Any], half: int | None, over_samples: bool, rotations: int) -> list[int]:
    """1 for a method told better than local, -1 for worse, else 0. half: of the rows of every client, or all."""
    labels = names(len(seeds[0]))
    values: dict[str, list[float]] = {label: [] for label in labels}
    moved: dict[str, list[Deviations]] = {label: [] for label in labels}
    for seed in seeds:
        for label, (found, scores) in zip(labels, seed, strict=True):
            if half is not None:
                own = found.rows % 2 == half
                found = MetricOutcomes(found.clients[own], found.rows[own], found.units[own], found.values[own])
                scores = {client: float(found.values[found.clients == client].mean()) for client in scores}
            values[label].append(float(np.mean([*scores.values()])))
            moved[label].append(deviations(found, scores))
    rules = Rules(1e-9, 27)  # no margin: better and worse are what may be false
    test = judge(values, rules, rotations=rotations, samples=moved if over_samples else None)
    word = {"better": 1, "worse": -1, "equal": 0}
    return [word[test.over_local[label].relation] if label in test.over_local else 0 for label in labels]


BARS = {1: equal_truth, 2: at_the_margin, 3: one_best, 4: real_means, 5: outlying_seeds, 6: two_seeds, 7: shared_rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--methods", type=int, nargs="+", default=[7, 12, 20], help="of bars 1 and 2")
    parser.add_argument("--bar", type=int, nargs="+", default=[*BARS], choices=[*BARS])
    parser.add_argument("--rotations", type=int, default=ROTATIONS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print("| bar | what | measured | allowed | met |\n| --- | --- | ---: | ---: | --- |", flush=True)
    lines = []
    for bar in asked.bar:
        for line in BARS[bar](asked.methods, asked.studies, asked.rotations):
            print(line, flush=True)
            lines.append(line)
    if asked.json:
        kept = [
            vars(line) | {"met": line.met, "more": None if line.more is None else vars(line.more)} for line in lines
        ]
        asked.json.write_text(json.dumps(kept, indent=1))
    return 0 if all(line.met for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
