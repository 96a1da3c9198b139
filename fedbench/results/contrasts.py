"""Comparisons of methods with seeds as the unit: t tests, resampling, and corrections for several comparisons.

The t distributions are those of scipy.special: scipy.stats, which uses the same, takes a second to load.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd
from scipy import special

from fedbench.results.rotations import DIGITS, RotatedScores
from fedbench.results.sample_error import SampleError
from fedbench.results.statistics import CONFIDENCE, LEAST_SEEDS, Interval, combined_error, interval, share_interval
from fedbench.results.tables import LAST, FinalScores
from fedbench.results.verdict import ALPHA, Relation, Verdict, relation_of_p

DRAWS = 4000
MOST_SEEDS = 1000
ENOUGH = 10
"""Number of seeds recommended if there are too few."""
POWER = 0.8
"""Probability with which as many seeds as needed decide."""
LARGEST_EFFECT = 500.0
"""Noncentrality beyond which the power is 1 for every number of seeds and comparisons in use."""


@dataclass(frozen=True)
class Contrast(Verdict):
    """The advantage of a method over another on test at the last round, paired by seed and client.

    interval: mean over seeds of the mean over a seed's clients, with a Student t interval over seeds, and test samples
    where outcomes were kept. resampled: 95 % interval of the same mean by resampling seeds, and clients within each. p:
    two-sided paired t test with the same error; None with fewer than three seeds. better_off: share of clients strictly
    better off, over seeds. seeds: those with pairs.

    Of its family: comparisons: the number of contrasts; p_adjusted: p adjusted for that number; simultaneous: half the
    width of the intervals of all contrasts that hold together with 95 %; both None with fewer than three seeds.

    resolves: the difference below which these seeds cannot tell one from 0; seeds_needed: how many would tell the
    observed one with a probability of 80 %, after the correction; both None with fewer than three seeds. No number of
    seeds tells what the choice of test samples alone leaves open (`needs_samples`).
    """

    interval: Interval
    resampled: tuple[float, float] | None = field(kw_only=True)
    p: float | None = field(kw_only=True)
    better_off: Interval = field(kw_only=True)
    p_adjusted: float | None = None
    seeds: tuple[int, ...] = ()
    comparisons: int = 1
    simultaneous: float | None = None

    @property
    def resolves(self) -> float | None:
        return self.interval.half if self.p is not None else None

    @property
    def seeds_needed(self) -> int | None:
        return seeds_for(self.interval, self.comparisons)

    @property
    def needs_samples(self) -> bool:
        """Whether the observed difference would stay open with any number of seeds over these test samples."""
        samples, mean = self.interval.samples, abs(self.interval.mean)
        if self.sign or self.p is None or samples is None or not mean:
            return False
        needed = special.ndtri(1 - ALPHA / self.comparisons / 2) + special.ndtri(POWER)
        return bool(mean < needed * np.sqrt(samples.variance))

    @property
    def relation(self) -> Relation:
        return relation_of_p(self.interval.mean, self.p_adjusted, self.simultaneous, self.margin)

    @property
    def relation_alone(self) -> Relation:
        return relation_of_p(self.interval.mean, self.p)


def contrast(scores: FinalScores, method: str, other: str, point: str) -> Contrast | None:
    """Returns None if there are no pairs."""
    return next(iter(contrasts(scores, [(method, other)], point)), None)


def contrasts(scores: FinalScores, pairs: Sequence[tuple[str, str]], point: str) -> list[Contrast]:
    """The existing contrasts of these pairs, not yet corrected."""
    both = [(pair, joined) for pair in pairs if len(joined := scores.paired_clients(*pair, point))]
    parts = [np.unique(joined["seed"].to_numpy(), return_index=True) for _, joined in both]  # pairs are in their order
    each = [
        np.split(joined["difference"].to_numpy(), starts[1:])
        for (_, joined), (_, starts) in zip(both, parts, strict=True)
    ]
    uncorrected = []
    for (pair, joined), (shared_seeds, _), seeds, span in zip(
        both, parts, each, resampled_intervals(each), strict=True
    ):
        samples = scores.pair_error(*pair, point, joined)
        gain = interval([round(float(differences.mean()), DIGITS) for differences in seeds], samples=samples)
        better = share_interval([float((differences > 0).mean()) for differences in seeds])
        p, names = p_of(gain.values, samples), tuple(shared_seeds.tolist())
        uncorrected.append(Contrast(*pair, gain, resampled=span, p=p, better_off=better, seeds=names))
    return uncorrected


def family(
    scores: FinalScores, pairs: Sequence[tuple[str, str]], point: str, margin: float | None = None
) -> list[Contrast]:
    """The existing contrasts of these pairs, corrected for their number."""
    uncorrected = [replace(made, margin=margin) for made in contrasts(scores, pairs, point)]
    tested = [made for made in uncorrected if made.p is not None]
    corrected = iter((by_rotations if correction_of(tested) == "rotations" else by_holm)(tested))
    return [made if made.p is None else next(corrected) for made in uncorrected]


def correction_of(tested: Sequence[Contrast]) -> Literal["", "rotations", "holm"]:
    """How contrasts with a test are corrected for their number: by rotations if all have the same seeds, else by Holm.

    Empty: a single one needs none.
    """
    if len(tested) < 2:
        return ""
    return "rotations" if len({made.seeds for made in tested}) == 1 else "holm"


def by_rotations(tested: Sequence[Contrast]) -> list[Contrast]:
    """Contrasts over the same seeds with p values and intervals that heed how they are correlated."""
    single = np.array([made.p for made in tested], dtype=float)
    differences = np.array([made.interval.values for made in tested]).T  # [seeds, contrasts]
    of, added = range(1, len(tested) + 1), np.zeros((len(tested) + 1, len(tested) + 1))
    added[1:, 0] = [0.0 if made.interval.samples is None else made.interval.samples.variance for made in tested]
    columns = np.column_stack([np.zeros(len(differences)), differences])
    rotated = RotatedScores(columns, sample_variances=added)
    _, errors = rotated.differences(of, 0)
    adjusted = np.maximum(single, rotated.adjusted_p(of, 0))
    halves = errors * rotated.critical(of, 0, ALPHA)
    return _with_correction(tested, adjusted.tolist(), halves.tolist())


def by_holm(tested: Sequence[Contrast]) -> list[Contrast]:
    """Contrasts over different seeds with p values adjusted by Holm and intervals by Bonferroni."""
    confidence = 1 - ALPHA / max(1, len(tested))
    halves = [interval(made.interval.values, confidence, made.interval.samples).half or 0.0 for made in tested]
    return _with_correction(tested, holm([made.p for made in tested if made.p is not None]), halves)


def _with_correction(tested: Sequence[Contrast], values: Sequence[float], halves: Sequence[float]) -> list[Contrast]:
    return [
        replace(made, comparisons=len(tested), p_adjusted=p, simultaneous=half)
        for made, p, half in zip(tested, values, halves, strict=True)
    ]


def stricter(one: Contrast, other: Contrast) -> Contrast:
    """A contrast that belongs to two families, with the stricter correction of both."""
    if one.p_adjusted is None or other.p_adjusted is None:
        return one
    return replace(
        one,
        p_adjusted=max(one.p_adjusted, other.p_adjusted),
        simultaneous=max(one.simultaneous or 0.0, other.simultaneous or 0.0),
        comparisons=max(one.comparisons, other.comparisons),
    )


def holm(values: Sequence[float]) -> list[float]:
    """p values adjusted by Holm's step-down method (1979).

    The function of statsmodels does the same, and collects garbage in every call: half a second beside PyTorch.
    """
    order, counts = np.argsort(values), np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(np.asarray(values, dtype=float)[order] * counts).clip(max=1)
    return adjusted.tolist()


def p_of(values: Sequence[float], samples: SampleError | None = None) -> float | None:
    """Two-sided t test that the mean is 0; None for fewer than three values.

    Values without spread have no t; their p is that of the sign test, 2 in 2 ** n, or 1 if they are 0. samples: adds
    its variance; p is never smaller than without.
    """
    if len(values) < LEAST_SEEDS:
        return None
    rounded = np.round(values, DIGITS)
    mean, error, dof = float(rounded.mean()), float(rounded.std(ddof=1) / np.sqrt(len(rounded))), len(rounded) - 1
    if np.ptp(rounded) == 0:
        p, error = 1.0 if rounded[0] == 0 else float(2.0**-dof), 0.0
    else:
        p = _p_of_t(mean / error, dof)
    if samples is None or not samples.variance:
        return p
    whole, dof_of_both = combined_error(error, len(rounded), samples)
    return max(p, _p_of_t(mean / whole, dof_of_both))


def _p_of_t(t: float, dof: float) -> float:
    return float(2 * special.stdtr(dof, -abs(t)))


def resampled_intervals(
    contrasts: Sequence[Sequence[np.ndarray]], draws: int = DRAWS
) -> list[tuple[float, float] | None]:
    """95 % percentile interval of the mean over seeds of each contrast; resamples seeds, and then their clients.

    A contrast: differences of each seed's clients. None with one seed. Those with the same numbers of clients share the
    draws, which take the time.
    """
    sizes = [tuple(map(len, seeds)) for seeds in contrasts]
    intervals: list[tuple[float, float] | None] = [None] * len(sizes)
    for sizes_of_seeds in {counts for counts in sizes if len(counts) > 1}:
        indices = [index for index, counts in enumerate(sizes) if counts == sizes_of_seeds]
        values = [
            np.stack([contrasts[index][seed] for index in indices], axis=1) for seed in range(len(sizes_of_seeds))
        ]
        low, high = np.quantile(_resample_means(values, draws), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
        for index, ends in zip(indices, zip(low.tolist(), high.tolist(), strict=True), strict=True):
            intervals[index] = ends
    return intervals


def _resample_means(values: Sequence[np.ndarray], draws: int) -> np.ndarray:
    """The means [draws, contrasts] over resampled seeds and clients. values: of each seed [clients, contrasts]."""
    rng, seeds = np.random.default_rng(0), len(values)
    total = np.zeros((draws, values[0].shape[1]))
    for _ in range(seeds):
        means = np.stack(
            [_times_drawn(rng, draws, len(differences)) @ differences / len(differences) for differences in values]
        )
        total += means[rng.integers(seeds, size=draws), np.arange(draws)]
    return total / seeds


def _times_drawn(rng: np.random.Generator, draws: int, clients: int) -> np.ndarray:
    """How often each client is drawn, [draws, clients], in as many picks as there are clients."""
    picked = rng.integers(clients, size=(draws, clients)) + clients * np.arange(draws)[:, None]
    return np.bincount(picked.ravel(), minlength=draws * clients).reshape(draws, clients).astype(float)


def resolution(seeds: int) -> float:
    """The smallest mean difference that a paired t test over these seeds separates from 0; infinite with one seed.

    In standard deviations of the difference over seeds, before any correction.
    """
    return float(special.stdtrit(seeds - 1, (1 + CONFIDENCE) / 2) / np.sqrt(seeds)) if seeds > 1 else np.inf


def too_few(seeds: int) -> str | None:
    """The warning before a comparison over this many seeds; None if they detect a difference as large as its spread."""
    if seeds < LEAST_SEEDS:
        few = "one seed" if seeds < 2 else "two seeds"
        return f"{few} cannot tell methods apart: use {ENOUGH} or more, --seeds {' '.join(map(str, range(ENOUGH)))}"
    least = resolution(seeds)
    if least <= 1:
        return None
    return (
        f"{seeds} seeds can tell two methods apart only if they differ by {least:.1f} times the standard deviation of "
        f"their difference over seeds; with {ENOUGH} seeds {resolution(ENOUGH):.1f} times is enough"
    )


def seeds_for(gain: Interval, comparisons: int = 1) -> int | None:
    """How many seeds tell this mean from 0 at the same spread with a probability of 80 %; None if unknown or too many.

    The error from test samples stays as it is, so that there may be no such number. comparisons: by which the level of
    the t test is divided.
    """
    if len(gain.values) < LEAST_SEEDS or np.ptp(gain.values) == 0 or gain.mean == 0:
        return None
    variance, added = float(np.var(gain.values, ddof=1)), 0.0 if gain.samples is None else gain.samples.variance
    effect = lambda seeds: abs(gain.mean) / float(np.sqrt(variance + seeds * added))  # noqa: E731
    counts = range(LEAST_SEEDS, MOST_SEEDS + 1)
    first = bisect_left(counts, POWER, key=lambda seeds: power(effect(seeds), seeds, ALPHA / comparisons))
    return counts[first] if first < len(counts) else None


def power(effect: float, seeds: int, level: float) -> float:
    """Probability that a two-sided t test of this level tells a mean from 0 in its direction.

    effect: the mean in standard deviations over seeds.
    """
    limit, centre = -special.stdtrit(seeds - 1, level / 2), min(effect * np.sqrt(seeds), LARGEST_EFFECT)
    return float(1 - special.nctdtr(seeds - 1, centre, limit))


def block_ranks(scores: FinalScores, methods: Sequence[str], point: str) -> dict[str, float]:
    """Mean rank of every method over the seeds that all have, 1 for the best; ties share ranks."""
    last = {method: scores.rows[method, point, LAST].set_index("seed") for method in methods}
    table = pd.DataFrame({method: rows[f"test_{scores.metric.name}"] for method, rows in last.items()})
    means = table.dropna().round(DIGITS).rank(axis=1, ascending=not scores.metric.higher).mean()
    return {str(method): float(rank) for method, rank in means.items()}
