"""Simulated outcomes of two or more methods on test rows that seeds share, with a known truth.

A row has an easiness and, for every method, a bonus of its own, in log odds: on some rows a method is better than on
others in every seed, which is what seeds that share rows cannot show. A seed moves all rows of a method alike, and
every outcome is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np

from fedbench.results.outcomes import MetricOutcomes
from fedbench.tasks.outcomes import auroc_without, pseudo_values

HOSPITALS, EVEN, LARGE = (116, 84, 66, 50, 34, 22, 12, 6), (36,) * 10, (200,) * 20
EASE, SEED_SPREAD, NOISE = (1.5, 1.5), 0.2, 0.5
"""Mean and standard deviation of a row's log odds; standard deviations of a seed's and of a single outcome's."""


@dataclass(frozen=True)
class Design:
    """sizes: test rows of the clients. spread: of a method's bonus over rows, in log odds.

    rows: `fixed`: those of a client in every seed; `dealt`: each seed deals them to the clients anew; `drawn`: each
    seed draws them from five times as many of a client. group: rows of a group, which has one bonus. positives: the
    share of rows of class 1; if set, the metric is AUROC, else accuracy.
    """

    sizes: tuple[int, ...]
    spread: float
    rows: Literal["fixed", "dealt", "drawn"] = "fixed"
    group: int = 1
    positives: float = 0.0


def logistic(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


class Population:
    """The rows of one study, and what each method is like on them. lead: of the first method, in log odds."""

    def __init__(self, design: Design, methods: int, draw: np.random.Generator, lead: float = 0.0) -> None:
        self.design, self.draw = design, draw
        count = sum(design.sizes) * (5 if design.rows == "drawn" else 1)
        self.groups = np.arange(count) // design.group
        self.ease = draw.normal(*EASE, count)
        bonus = draw.normal(0, design.spread / np.sqrt(2), (methods, self.groups[-1] + 1))
        self.bonus = bonus[:, self.groups]  # so that a difference of two methods has the spread
        self.bonus[0] += lead
        self.positive = draw.random(count) < design.positives
        starts = np.cumsum([0, *design.sizes])
        if design.positives:  # split by class: every client has some of both
            for start, end in pairwise(starts):
                few = max(2, round(design.positives * (end - start)))
                self.positive[start:end] = False
                self.positive[start : start + few] = True

    def deal(self) -> list[np.ndarray]:
        """The rows of every client in a seed."""
        sizes, starts = self.design.sizes, np.cumsum([0, *self.design.sizes])
        if self.design.rows == "drawn":
            return [5 * s + self.draw.permutation(5 * n)[:n] for s, n in zip(starts, sizes, strict=False)]
        order = np.arange(starts[-1]) if self.design.rows == "fixed" else self.draw.permutation(starts[-1])
        return np.split(order, starts[1:-1])

    def seed(self) -> list[tuple[MetricOutcomes, dict[int, float]]]:
        """The outcomes of every method in a new seed, and the scores of its clients."""
        parts = self.deal()
        rows, clients = np.concatenate(parts), np.repeat(np.arange(len(parts)), [*map(len, parts)])
        found = []
        for bonus in self.bonus:
            odds = self.ease[rows] + bonus[rows] + self.draw.normal(0, SEED_SPREAD)
            odds += self.draw.normal(0, NOISE, len(rows))
            values, scores = self.score(rows, clients, odds, len(parts))
            found.append((MetricOutcomes(clients, rows, self.groups[rows], values), scores))
        return found

    def score(
        self, rows: np.ndarray, clients: np.ndarray, odds: np.ndarray, count: int
    ) -> tuple[np.ndarray, dict[int, float]]:
        if not self.design.positives:
            values = (self.draw.random(len(rows)) < logistic(odds)).astype(float)
            return values, {c: float(values[clients == c].mean()) for c in range(count)}
        values, scores, margins = np.empty(len(rows)), {}, ranked(odds, self.positive[rows], self.draw)
        for client in range(count):
            own = clients == client
            whole, without = auroc_without(margins[own], self.positive[rows][own])
            values[own], scores[client] = pseudo_values(whole, without), whole
        return values, scores


def ranked(odds: np.ndarray, positive: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A model's margins: the odds of being right, with the sign of the class, and noise."""
    return np.where(positive, 1, -1) * odds + draw.normal(0, 1, len(odds))


@cache
def truth(design: Design, lead: float) -> float:
    """The first method's mean over new rows and seeds minus another one's."""
    draw, count = np.random.default_rng(1), 1_000_000
    ease, bonus = draw.normal(*EASE, count), draw.normal(0, design.spread / np.sqrt(2), (2, count))
    positive, means = draw.random(count) < max(0.3, design.positives), []
    for own in (bonus[0] + lead, bonus[1]):
        odds = ease + own + draw.normal(0, SEED_SPREAD, count) + draw.normal(0, NOISE, count)
        if design.positives:
            means.append(area(ease, own, positive, draw))
        else:
            means.append(float(logistic(odds).mean()))
    return means[0] - means[1]


def area(ease: np.ndarray, bonus: np.ndarray, positive: np.ndarray, draw: np.random.Generator) -> float:
    """The mean AUROC over seeds."""
    found = []
    for shift in SEED_SPREAD * np.array([-np.sqrt(3), 0, np.sqrt(3)]):  # Gauss and Hermite's three nodes
        margins = ranked(ease + bonus + shift + draw.normal(0, NOISE, len(ease)), positive, draw)
        found.append(auroc_without(margins, positive)[0])
    return float(np.average(found, weights=[1, 4, 1]))


def differences(population: Population, seeds: int) -> Sequence[tuple[float, MetricOutcomes, dict[int, float]]]:
    """Of every seed: the first method's score minus the second's, its outcomes, and its clients' differences."""
    found = []
    for _ in range(seeds):
        (one, ours), (other, theirs) = population.seed()
        gains = {client: ours[client] - theirs[client] for client in ours}
        both = MetricOutcomes(one.clients, one.rows, one.units, one.values - other.values)
        found.append((float(np.mean([*gains.values()])), both, gains))
    return found
