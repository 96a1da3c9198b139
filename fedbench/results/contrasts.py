"""Comparisons of methods with seeds as the unit: t tests, resampling, and Holm's correction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.results.statistics import CONFIDENCE, Interval, interval
from fedbench.results.tables import LAST, FinalScores

DRAWS = 4000
MOST_SEEDS = 1000
ENOUGH = 10
"""Number of seeds recommended if there are too few."""


@dataclass(frozen=True)
class Contrast:
    """The advantage of a method over another on test at the last round, paired by seed and client.

    gain: mean over seeds of the mean over a seed's clients, with a Student t interval over seeds. resampled: 95 %
    interval of the same mean by resampling seeds, and clients within each. p: two-sided paired t test over seeds;
    p_holm: Holm-adjusted over all contrasts of a family; both None with one seed. better_off: share of clients strictly
    better off, over seeds. resolves: the smallest difference that these seeds can separate from 0; seeds_needed: how
    many would separate the observed one.
    """

    method: str
    other: str
    gain: Interval
    resampled: tuple[float, float] | None
    p: float | None
    better_off: Interval
    p_holm: float | None = None

    @property
    def resolves(self) -> float | None:
        return self.gain.half

    @property
    def seeds_needed(self) -> int | None:
        return seeds_for(self.gain)

    @property
    def sign(self) -> int:
        """1 if the method is better, -1 if it is worse, after the correction; 0 if undecided."""
        decided = self.p_holm is not None and self.p_holm < 1 - CONFIDENCE
        return int(np.sign(self.gain.mean)) if decided else 0


def contrast(scores: FinalScores, method: str, other: str, point: str) -> Contrast | None:
    """Returns None if there are no pairs."""
    joined = scores.paired(method, other, point)
    if joined.empty:
        return None
    seeds = [own.to_numpy() for _, own in joined.groupby("seed")["difference"]]
    gain = interval([own.mean() for own in seeds])
    better = interval([float((own > 0).mean()) for own in seeds])
    return Contrast(method, other, gain, resampled_interval(seeds), p_of(gain.values), better)


def family(scores: FinalScores, asked: Sequence[tuple[str, str]], point: str) -> list[Contrast]:
    """The existing contrasts of these pairs, with Holm-adjusted p values."""
    found = [made for pair in asked if (made := contrast(scores, *pair, point)) is not None]
    adjusted = iter(holm([made.p for made in found if made.p is not None]))
    return [made if made.p is None else replace(made, p_holm=next(adjusted)) for made in found]


def holm(values: Sequence[float]) -> list[float]:
    """p values adjusted by Holm's step-down method."""
    if not values:
        return []
    from statsmodels.stats.multitest import multipletests

    return [float(value) for value in multipletests(values, method="holm")[1]]


def p_of(values: Sequence[float]) -> float | None:
    """Two-sided t test that the mean is 0; without any spread the values decide; None for one value."""
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return 1.0 if values[0] == 0 else 0.0
    return float(stats.ttest_1samp(values, 0).pvalue)


def resampled_interval(seeds: Sequence[np.ndarray], draws: int = DRAWS) -> tuple[float, float] | None:
    """95 % percentile interval of the mean of the seeds' means; resamples seeds and then their clients.

    seeds: differences of each seed's clients. None with one seed.
    """
    if len(seeds) < 2:
        return None
    rng = np.random.default_rng(0)
    total = np.zeros(draws)
    for _ in seeds:
        means = np.stack([own[rng.integers(len(own), size=(draws, len(own)))].mean(1) for own in seeds])
        total += means[rng.integers(len(seeds), size=draws), np.arange(draws)]
    low, high = np.quantile(total / len(seeds), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def resolution(seeds: int) -> float:
    """The smallest mean difference that a paired t test over these seeds separates from 0; infinite with one seed.

    In standard deviations of the difference over seeds.
    """
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1) / np.sqrt(seeds)) if seeds > 1 else np.inf


def too_few(seeds: int) -> str | None:
    """The warning before a comparison over this many seeds; None if they detect a difference as large as its spread."""
    least = resolution(seeds)
    if least <= 1:
        return None
    if seeds < 2:
        return f"one seed cannot tell methods apart: use {ENOUGH} or more, --seeds {' '.join(map(str, range(ENOUGH)))}"
    return (
        f"{seeds} seeds can tell two methods apart only if they differ by {least:.1f} times the standard deviation of "
        f"their difference over seeds; with {ENOUGH} seeds {resolution(ENOUGH):.1f} times is enough"
    )


def seeds_for(gain: Interval) -> int | None:
    """How many seeds would separate this mean from 0 at the same spread; None if unknown or too many."""
    if len(gain.values) < 2 or gain.mean == 0:
        return None
    spread = float(np.std(gain.values, ddof=1))
    for count in range(2, MOST_SEEDS + 1):
        if stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * spread / np.sqrt(count) < abs(gain.mean):
            return count
    return None


def block_ranks(scores: FinalScores, methods: Sequence[str], point: str) -> dict[str, float]:
    """Mean rank of every method over the seeds that all have, 1 for the best; ties share ranks."""
    last = {method: scores.rows[method, point, LAST].set_index("seed") for method in methods}
    table = pd.DataFrame({method: rows[f"test_{scores.metric.name}"] for method, rows in last.items()})
    means = table.dropna().rank(axis=1, ascending=not scores.metric.higher).mean()
    return {str(method): float(rank) for method, rank in means.items()}
