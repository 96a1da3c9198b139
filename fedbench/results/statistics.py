"""Means with intervals over seeds and test samples, paired differences between methods, and the worst-off clients.

Intervals use one value per seed, because clients of one seed share partition, server and initial model, and what the
choice of the test samples adds where seeds share some (`sample_error.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from fedbench.results.rotations import DIGITS
from fedbench.results.sample_error import SampleError
from fedbench.tasks import Metric

CONFIDENCE = 0.95
LEAST_SEEDS = 3
"""Fewer seeds give no verdict: the spread of two differences says next to nothing."""


Bounds = tuple[float | None, float | None]
"""The least and the largest possible value; None: there is none."""

INTERVAL_COLUMNS = ("seeds", "mean", "sd", "low", "high")


class NoValue(ValueError):
    """There are no values to average."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % Student t interval; `low` and `high` are None with fewer than two seeds.

    samples: what the choice of test samples adds to its error; None if the interval is over seeds alone.
    """

    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]
    samples: SampleError | None = None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None or self.low is None else (self.high - self.low) / 2

    @property
    def is_lopsided(self) -> bool:
        """Whether one end is farther from the mean than the other."""
        return self.half is not None and not math.isclose(self.mean + self.half, self.high or 0.0, abs_tol=1e-9)

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over seeds (divisor n - 1)."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def seeds(self) -> int:
        return len(self.values)

    def columns(self) -> dict[str, float | None]:
        """The form in tables, by INTERVAL_COLUMNS."""
        return {"seeds": len(self.values), "mean": self.mean, "sd": self.sd, "low": self.low, "high": self.high}

    def to_dict(self) -> dict[str, object]:
        """The form in summary.json: mean, low, high, values, and whether the interval is over test samples too."""
        ends: dict[str, object] = {"mean": self.mean, "low": self.low, "high": self.high, "values": list(self.values)}
        return ends if self.samples is None else {**ends, "over_samples": True}


ENDS = {"": "mean", "_low": "low", "_high": "high"}


def ends_of(name: str, interval: Any) -> dict[str, float | None]:
    """A mean and the ends of its interval as columns NAME, NAME_low and NAME_high; empty if there is none."""
    return {f"{name}{end}": getattr(interval, part, None) for end, part in ENDS.items()}


def interval(
    values: Sequence[float],
    confidence: float = CONFIDENCE,
    samples: SampleError | None = None,
    bounds: Bounds = (None, None),
) -> Interval:
    """Mean and two-sided Student t interval of one number per seed; NaN values are missing seeds.

    samples: adds its variance, with the degrees of freedom of Satterthwaite; the interval is never narrower than
    without. bounds: of values. An interval that would leave them ends at the bound if there is one alone, and is
    that of `share_interval` on their scale if there are two. Raises NoValue if there are none.
    """
    known = tuple(float(v) for v in values if v is not None and not math.isnan(v))
    if not known:
        raise NoValue("an interval needs at least one value")
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return Interval(mean, None, None, known)
    # Rounding would give equal values a spread.
    error = 0.0 if min(known) == max(known) else float(np.std(known, ddof=1)) / math.sqrt(len(known))
    level = (1 + confidence) / 2
    half = float(special.stdtrit(len(known) - 1, level)) * error
    if samples is not None:
        whole, dof = combined_error(error, len(known), samples)
        half = max(half, float(special.stdtrit(dof, level)) * whole)
    low, high = mean - half, mean + half
    least, most = bounds
    if (least is not None and low < least) or (most is not None and high > most):
        low, high = _ends_within(bounds, known, mean, half)
    return Interval(mean, low, high, known, samples)


def _ends_within(bounds: Bounds, values: Sequence[float], mean: float, half: float) -> tuple[float, float]:
    """The ends of an interval within its bounds. half: of Student's, which would leave them."""
    least, most = bounds
    low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
    if not low <= min(values) <= max(values) <= high:  # these are not its bounds
        return mean - half, mean + half
    if least is None or most is None:
        return max(low, mean - half), min(high, mean + half)
    start, end = _share_ends((mean - low) / (high - low), half / (high - low))
    return low + start * (high - low), low + end * (high - low)


def combined_error(error: float, seeds: int, samples: SampleError) -> tuple[float, float]:
    """The standard error over seeds and test samples, and its degrees of freedom (Satterthwaite).

    error: over seeds.
    """
    variance = error**2 + samples.variance
    if variance == 0:
        return 0.0, float(seeds - 1)
    return math.sqrt(variance), variance**2 / (error**4 / (seeds - 1) + samples.variance**2 / samples.dof)


def share_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Mean of one share in [0, 1] per seed, with an interval that stays within [0, 1] and may be lopsided.

    Wilson's score interval with Student's t, for as many trials as would give the standard error over seeds (Korn and
    Graubard, Survey Methodology 24 (1998), use the same number). Raises NoValue if there are none.
    """
    plain = interval(values, confidence)
    if plain.half is None or plain.half == 0 or not 0 < plain.mean < 1:
        return plain
    return Interval(plain.mean, *_share_ends(plain.mean, plain.half), plain.values)


def _share_ends(mean: float, half: float) -> tuple[float, float]:
    """Wilson's ends within 0 and 1. half: of Student's interval with the same standard error.

    A share of 0 or 1 in all seeds has no variance of its own, so that only the end that is legal is that of Student's.
    """
    variance = mean * (1 - mean)
    if variance <= 0:
        return max(0.0, mean - half), min(1.0, mean + half)
    weight = half**2 / variance  # square of the quantile over the number of trials
    centre = (mean + weight / 2) / (1 + weight)
    half_width = math.sqrt(variance * weight + weight**2 / 4) / (1 + weight)
    return max(0.0, centre - half_width), min(1.0, centre + half_width)


def pooled_means(seeds: pd.Series, values: pd.Series, counts: pd.Series) -> pd.Series:
    """The mean over all samples per seed, from means and their counts; omits seeds that lack a count."""
    names, means, weights = seeds.to_numpy(), values.to_numpy(dtype=float), counts.to_numpy(dtype=float)
    known = ~(np.isnan(means) | np.isnan(weights))
    means_by_seed = {}
    for name in np.unique(names[known]):
        of_seed = known & (names == name)
        means_by_seed[name] = math.fsum(means[of_seed] * weights[of_seed]) / math.fsum(weights[of_seed])
    pooled = pd.Series(means_by_seed, dtype=float)
    pooled.index.name = seeds.name
    return pooled


def pooled_values(metric: Metric, seeds: pd.Series, values: pd.Series, counts: pd.Series) -> pd.Series:
    """The metric over all samples per seed, from values and their counts, whose mean, or that of logarithms, it is."""
    means = pooled_means(seeds, np.log(values) if metric.log_mean else values, counts)
    return np.exp(means) if metric.log_mean else means


def worst_tenth(values: Sequence[float] | np.ndarray, higher: bool = True) -> float:
    """Mean of the worst ceil(n/10) of n clients; NaN without clients. higher: whether higher is better."""
    known = np.sort(np.asarray(values, dtype=float))
    known = known[~np.isnan(known)][:: 1 if higher else -1]
    return float(known[: math.ceil(len(known) / 10)].mean()) if len(known) else math.nan


def client_pairs(ours: pd.DataFrame, theirs: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """How much better ours is for each client on test: columns seed, client, ours, theirs, difference.

    Both frames have one row per seed and client; rows without a partner are left out. Differences are rounded, so that
    equal differences of accuracies, which are multiples of 1 / n, are the same number.
    """
    value = f"test_{metric.name}"
    # By arrays: a page asks for hundreds of such pairs, and a merge takes several milliseconds.
    columns = [[frame[name].to_numpy() for name in ("seed", "client", value)] for frame in (ours, theirs)]
    left, right = ([column[~np.isnan(column3[2])] for column in column3] for column3 in columns)
    stride = 1 + max((int(clients.max()) for _, clients, _ in (left, right) if len(clients)), default=0)
    one, other = (seeds * stride + clients for seeds, clients, _ in (left, right))
    _, here, there = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    mine, others = left[2][here], right[2][there]
    gain = (mine - others).round(DIGITS)
    names = {"seed": left[0][here], "client": left[1][here]}
    return pd.DataFrame({**names, "ours": mine, "theirs": others, "difference": gain if metric.higher else -gain})


def paired_difference(paired: pd.DataFrame, samples: SampleError | None = None) -> Interval | None:
    """Mean over seeds of the mean gain of a seed's clients, with its interval; None without pairs."""
    if paired.empty:
        return None
    return interval([round(mean, DIGITS) for mean in _means(paired, paired["difference"])], samples=samples)


def share_that_gains(paired: pd.DataFrame) -> float:
    """Share in [0, 1] of clients strictly better than theirs, mean over seeds."""
    return float(np.mean(_means(paired, paired["difference"] > 0)))


def _means(paired: pd.DataFrame, values: pd.Series) -> list[float]:
    """The mean of each seed's pairs, which stand in the order of seeds."""
    _, starts = np.unique(paired["seed"].to_numpy(), return_index=True)
    return [math.fsum(seed.tolist()) / len(seed) for seed in np.split(values.to_numpy(), starts[1:])]
