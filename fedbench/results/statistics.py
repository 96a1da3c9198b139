"""Means with intervals over seeds, paired differences between methods, and the worst-off clients.

Intervals use one value per seed, because clients of one seed share partition, server and initial model.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from fedbench.results.rotations import DIGITS
from fedbench.tasks import Metric

CONFIDENCE = 0.95
LEAST_SEEDS = 3
"""Fewer seeds give no verdict: the spread of two differences says next to nothing."""


INTERVAL_COLUMNS = ("seeds", "mean", "sd", "low", "high")


class NoValue(ValueError):
    """There are no values to average."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % Student t interval; `low` and `high` are None with fewer than two seeds."""

    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over seeds (divisor n - 1)."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def sign(self) -> int:
        """1 if the interval is above 0, -1 if it is below, 0 if it includes 0 or there are fewer than three seeds."""
        if self.low is None or self.high is None or len(self.values) < LEAST_SEEDS:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    def columns(self) -> dict[str, float | None]:
        """The form in tables, by INTERVAL_COLUMNS."""
        return {"seeds": len(self.values), "mean": self.mean, "sd": self.sd, "low": self.low, "high": self.high}

    def to_dict(self) -> dict[str, object]:
        """The form in summary.json: mean, low, high, values."""
        return {**asdict(self), "values": list(self.values)}


ENDS = {"": "mean", "_low": "low", "_high": "high"}


def ends_of(name: str, found: Any) -> dict[str, float | None]:
    """A mean and the ends of its interval as columns NAME, NAME_low and NAME_high; empty if there is none."""
    return {f"{name}{end}": getattr(found, part, None) for end, part in ENDS.items()}


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Mean and two-sided Student t interval of one number per seed; NaN values are missing seeds.

    Raises NoValue if there are none.
    """
    known = tuple(float(v) for v in values if v is not None and not math.isnan(v))
    if not known:
        raise NoValue("an interval needs at least one value")
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return Interval(mean, None, None, known)
    error = float(np.std(known, ddof=1)) / math.sqrt(len(known))
    half = float(special.stdtrit(len(known) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - half, mean + half, known)


def share_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Mean of one share in [0, 1] per seed, with an interval that stays within [0, 1] and may be lopsided.

    Wilson's score interval with Student's t, for as many trials as would give the standard error over seeds (Korn and
    Graubard, Survey Methodology 24 (1998), use the same number). Raises NoValue if there are none.
    """
    plain = interval(values, confidence)
    if plain.half is None or plain.half == 0 or not 0 < plain.mean < 1:
        return plain
    variance = plain.mean * (1 - plain.mean)
    weight = plain.half**2 / variance  # square of the quantile over the number of trials
    centre = (plain.mean + weight / 2) / (1 + weight)
    half = math.sqrt(variance * weight + weight**2 / 4) / (1 + weight)
    return Interval(plain.mean, max(0.0, centre - half), min(1.0, centre + half), plain.values)


def pooled_means(seeds: pd.Series, values: pd.Series, counts: pd.Series) -> pd.Series:
    """The mean over all samples per seed, from means and their counts; omits seeds that lack a count."""
    names, means, weights = seeds.to_numpy(), values.to_numpy(dtype=float), counts.to_numpy(dtype=float)
    known = ~(np.isnan(means) | np.isnan(weights))
    found = {}
    for name in np.unique(names[known]):
        own = known & (names == name)
        found[name] = math.fsum(means[own] * weights[own]) / math.fsum(weights[own])
    pooled = pd.Series(found, dtype=float)
    pooled.index.name = seeds.name
    return pooled


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
    columns = [[found[name].to_numpy() for name in ("seed", "client", value)] for found in (ours, theirs)]
    left, right = ([column[~np.isnan(own[2])] for column in own] for own in columns)
    stride = 1 + max((int(clients.max()) for _, clients, _ in (left, right) if len(clients)), default=0)
    one, other = (seeds * stride + clients for seeds, clients, _ in (left, right))
    _, here, there = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    mine, others = left[2][here], right[2][there]
    gain = (mine - others).round(DIGITS)
    names = {"seed": left[0][here], "client": left[1][here]}
    return pd.DataFrame({**names, "ours": mine, "theirs": others, "difference": gain if metric.higher else -gain})


def paired_difference(paired: pd.DataFrame) -> Interval | None:
    """Mean over seeds of the mean gain of a seed's clients, with its interval; None without pairs."""
    return None if paired.empty else interval([round(mean, DIGITS) for mean in _means(paired, paired["difference"])])


def share_that_gains(paired: pd.DataFrame) -> float:
    """Share in [0, 1] of clients strictly better than theirs, mean over seeds."""
    return float(np.mean(_means(paired, paired["difference"] > 0)))


def _means(paired: pd.DataFrame, values: pd.Series) -> list[float]:
    """The mean of each seed's pairs, which stand in the order of seeds."""
    _, starts = np.unique(paired["seed"].to_numpy(), return_index=True)
    return [math.fsum(own.tolist()) / len(own) for own in np.split(values.to_numpy(), starts[1:])]
