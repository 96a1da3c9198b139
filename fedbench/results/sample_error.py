"""The error that the choice of test samples adds to a mean over seeds.

Seeds that share test samples err together: a sample on which a method happens to be good is counted in every seed, and
the spread over seeds does not show it. What it leaves out is the covariance of the seeds' scores through the samples
that they share. It is estimated from the outcomes of the samples as in two-way clustered variances (Cameron, Gelbach
and Miller 2011): for fixed test parts, for samples that each seed deals to other clients, and for samples that seeds
draw anew from one table, some of which recur. Clients are fixed: nothing here says something of other clients.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedbench.results.outcomes import MetricOutcomes


@dataclass(frozen=True)
class Deviations:
    """By how much each unit (row, group of rows, or block) moves the score of a seed. units: ascending `[u]`."""

    units: np.ndarray
    values: np.ndarray

    def minus(self, other: "Deviations") -> "Deviations":
        """The deviations of the difference of two scores of the same seed."""
        units, column = np.unique(np.concatenate([self.units, other.units]), return_inverse=True)
        values = np.bincount(column, np.concatenate([self.values, -other.values]), minlength=len(units))
        return Deviations(units, values)


def deviations(outcomes: MetricOutcomes, scores: Mapping[int, float]) -> Deviations:
    """Deviations of a seed's score, the mean over clients of client means.

    scores: of the clients that count. A sample at a client with n of them deviates by its outcome minus the client's
    mean of the samples outside its unit, over n and the number of clients, as the jackknife has it. A unit without
    which its client has no score, because all its samples are in it, or the only one of a class is, is compared with
    the mean of clients ("adjusted lonely units" of survey statistics).
    """
    counted = np.isin(outcomes.clients, np.fromiter(scores, np.int64, len(scores)))
    clients, units, values = outcomes.clients[counted], outcomes.units[counted], outcomes.values[counted].astype(float)
    names, client = np.unique(clients, return_inverse=True)
    unknown = np.isnan(values)
    size, known = (np.bincount(client, weights, len(names)) for weights in (np.ones(len(client)), ~unknown))
    means = np.bincount(client, np.where(unknown, 0.0, values), len(names)) / np.maximum(known, 1)
    _, pair, together = np.unique(
        np.stack([client, units]), axis=1, return_inverse=True, return_counts=True
    )  # samples of a unit at a client
    own_weight = together[pair.reshape(-1)]
    whole = size[client]
    away = np.where(unknown, 0.0, values - means[client]) / np.maximum(whole - own_weight, 1)
    own_score = np.array([scores[int(name)] for name in names]) - np.mean([*scores.values()])
    away = np.where(own_weight == whole, own_score[client] / whole, away)
    away = np.where(unknown & (own_weight < whole), own_score[client], away)
    unit, column = np.unique(units, return_inverse=True)
    return Deviations(unit, np.bincount(column, away / len(scores), minlength=len(unit)))


@dataclass(frozen=True)
class SampleError:
    """The variance of a mean over seeds that comes from the choice of its test samples.

    dof: degrees of freedom of that estimate.
    """

    variance: float
    dof: float


def sample_error(seeds: Sequence[Deviations]) -> SampleError:
    """The mean covariance between two seeds, from the deviations of each; 0 if it is negative, or with one seed."""
    count = len(seeds)
    if count < 2:
        return SampleError(0.0, 1.0)
    units, column = np.unique(np.concatenate([seed.units for seed in seeds]), return_inverse=True)
    values = np.concatenate([seed.values for seed in seeds])
    sums, squares = (np.bincount(column, weights, minlength=len(units)) for weights in (values, values**2))
    parts = (sums**2 - squares) / (count * (count - 1))  # of every unit
    total, spread = float(parts.sum()), float((parts**2).sum())
    return SampleError(total, max(1.0, 2 * total**2 / spread)) if total > 0 else SampleError(0.0, 1.0)


def sample_variances(methods: Sequence[Sequence[Deviations]]) -> np.ndarray:
    """The variance of the difference of every two methods, `[K, K]`, from their deviations in the same seeds."""
    count, methods_count = len(methods[0]), len(methods)
    if count < 2:
        return np.zeros((methods_count, methods_count))
    units = np.unique(np.concatenate([variances.units for seeds in methods for variances in seeds]))
    sums, within = np.zeros((methods_count, len(units))), np.zeros((methods_count, methods_count))
    for seed in range(count):
        here = np.zeros_like(sums)
        for method, seeds in enumerate(methods):
            here[method, np.searchsorted(units, seeds[seed].units)] = seeds[seed].values
        sums += here
        within += here @ here.T
    shared = (sums @ sums.T - within) / (count * (count - 1))
    variances = np.diagonal(shared)
    return np.maximum(0.0, variances[:, None] + variances - 2 * shared)


@dataclass(frozen=True)
class Evidence:
    """How many test samples stand behind scores.

    seeds: number of seeds. samples: distinct ones over all seeds; per_seed: of a seed, mean over seeds. positive,
    positive_per_seed: of these, those of class 1 where there are two classes, else None.
    """

    seeds: int
    samples: int
    per_seed: float
    positive: int | None = None
    positive_per_seed: float | None = None


def evidence(seeds: Iterable[MetricOutcomes]) -> Evidence | None:
    """Of the outcomes of each seed; None without any."""
    known = list(seeds)
    if not known:
        return None
    rows = [np.unique(seed.rows) for seed in known]
    hits = [np.unique(seed.rows[seed.positive]) for seed in known if seed.positive is not None]
    distinct, per_seed = len(np.unique(np.concatenate(rows))), float(np.mean([*map(len, rows)]))
    if len(hits) < len(known):
        return Evidence(len(known), distinct, per_seed)
    return Evidence(
        len(known), distinct, per_seed, len(np.unique(np.concatenate(hits))), float(np.mean([*map(len, hits)]))
    )
