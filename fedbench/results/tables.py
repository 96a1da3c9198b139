"""The final table for reports and the terminal: one row per method, evaluation point and choice of round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from fedbench.results.estimators import SAMPLES
from fedbench.results.outcomes import MetricOutcomes
from fedbench.results.rounds import at_best_round, at_last_round
from fedbench.results.sample_error import Deviations, Evidence, SampleError, deviations, evidence, sample_error
from fedbench.results.schema import COMMON, POINTS, POOLED
from fedbench.results.statistics import (
    Interval,
    client_pairs,
    ends_of,
    interval,
    paired_difference,
    pooled_means,
    pooled_values,
    share_that_gains,
)
from fedbench.results.unscored import scored_counts
from fedbench.tasks import Metric

LAST, BEST_VAL, BEST_TEST = "last", "best_val", "best_test"
CHOICES = {LAST: None, BEST_VAL: "val", BEST_TEST: "test"}
"""The split whose metric chooses the round, or None."""
GAINS = ["gain", "gain_low", "gain_high", "share_gains"]
SCORED = ["clients", "fewest_scored", "most_scored"]
SCORE_COLUMNS = [
    *("mean", "sd", "low", "high", "pooled", "weighted", *SCORED),
    *("worst_tenth", "worst_tenth_low", "worst_tenth_high", "spread"),
]
TABLE_COLUMNS = ["method", "point", "choice", "estimator", "seeds", "round", *SCORE_COLUMNS, *GAINS, "intervals_over"]
SEEDS_ALONE = "seeds"
"""The name of intervals that leave the choice of test samples out."""
BASELINE = "local"
PAIRED = ["seed", "client", "ours", "theirs", "difference"]
Outcomes = Mapping[tuple[int, str], MetricOutcomes]
"""Of a method, by seed and point."""
ScorePlace = tuple[str, str, str]
"""A row of the final table: method, point, choice."""


@dataclass(frozen=True)
class FinalScores:
    """The scores of methods by method, point and choice of the round, as far as the choice can be made.

    rows: of metrics.jsonl, one per seed. clients: of clients.parquet, at the same seeds and rounds; none where only
    metrics are known. outcomes: of the metric at the last round, by method, seed and point, where they were kept.
    """

    metric: Metric
    rows: Mapping[ScorePlace, pd.DataFrame]
    clients: Mapping[ScorePlace, pd.DataFrame]
    outcomes: Mapping[str, Outcomes] = field(default_factory=dict)
    _deviations: dict[Any, Deviations] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        metric: Metric,
        metrics: Mapping[str, pd.DataFrame],
        clients: Mapping[str, pd.DataFrame] | None = None,
        outcomes: Mapping[str, Outcomes] = MappingProxyType({}),
    ) -> "FinalScores":
        rows: dict[ScorePlace, pd.DataFrame] = {
            (method, point, choice): chosen
            for method, frame in metrics.items()
            for point in POINTS
            for at_point in [frame[frame["point"] == point]]
            for choice in CHOICES
            if len(chosen := _at_chosen_round(metric, at_point, choice))
        }
        at_rows = (
            {} if clients is None else {place: clients_at(clients[place[0]], chosen) for place, chosen in rows.items()}
        )
        return cls(metric, rows, at_rows, outcomes)

    def paired_clients(self, method: str, other: str, point: str, choice: str = LAST) -> pd.DataFrame:
        """The clients of two methods in pairs, each at its own chosen round; none where one of them has no such score.

        Another method that lacks the point is taken after aggregation.
        """
        ours = self.clients.get((method, point, choice))
        theirs = self.clients.get((other, point, choice), self.clients.get((other, "after_agg", choice)))
        return (
            pd.DataFrame(columns=PAIRED) if ours is None or theirs is None else client_pairs(ours, theirs, self.metric)
        )

    def difference(self, method: str, other: str, point: str) -> Interval | None:
        """How much better a method is than another on test at the last round; None without pairs."""
        paired = self.paired_clients(method, other, point)
        return paired_difference(paired, self.pair_error(method, other, point, paired))

    def score(self, method: str, point: str, choice: str = LAST) -> Interval:
        """A method's mean over clients and seeds, with its interval over seeds, and test samples where known."""
        values = self.rows[method, point, choice][f"test_{self.metric.name}"].tolist()
        samples = self.error(method, point) if choice == LAST else None
        return interval(values, samples=samples, bounds=self.metric.bounds)

    def error(self, method: str, point: str) -> SampleError | None:
        """The error that the choice of test samples adds to a method's score at the last round.

        None if a seed has no outcomes, or with fewer than two seeds.
        """
        deviations = self.seed_deviations(method, point, self._seeds(method, point))
        return None if deviations is None or len(deviations) < 2 else sample_error(deviations)

    def pair_error(self, method: str, other: str, point: str, paired: pd.DataFrame) -> SampleError | None:
        """The error that the choice of test samples adds to the difference of two methods.

        paired: the clients of both, see `paired_clients`.
        """
        at_other = point if (other, point, LAST) in self.rows else "after_agg"
        seeds, starts = np.unique(paired["seed"].to_numpy(), return_index=True)
        parts = zip(*(np.split(paired[name].to_numpy(), starts[1:]) for name in PAIRED[1:4]), strict=True)
        differences = []
        for seed, (clients, ours, theirs) in zip(seeds.tolist(), parts, strict=True) if len(seeds) > 1 else ():
            one = self._seed_deviations(method, point, seed, dict(zip(clients.tolist(), ours.tolist(), strict=True)))
            two = self._seed_deviations(
                other, at_other, seed, dict(zip(clients.tolist(), theirs.tolist(), strict=True))
            )
            if one is None or two is None:
                return None
            differences.append(one.minus(two))
        return sample_error(differences) if differences else None

    def seed_deviations(self, method: str, point: str, seeds: Sequence[int]) -> list[Deviations] | None:
        """By how much each test sample moves a method's score at the last round, seed by seed; None if unknown."""
        if method not in self.outcomes:
            return None
        known, all_deviations = self._client_scores(method, point), []
        for seed in seeds:
            if (made := self._seed_deviations(method, point, seed, known.get(seed, {}))) is None:
                return None
            all_deviations.append(made)
        return all_deviations

    def _client_scores(self, method: str, point: str) -> dict[int, dict[int, float]]:
        """A method's clients with their scores at the last round, by seed."""
        frame = self.clients.get((method, point, LAST))
        if frame is None:
            return {}
        by_seed: dict[int, dict[int, float]] = {}
        columns = (frame[name].tolist() for name in ("seed", "client", f"test_{self.metric.name}"))
        for seed, client, value in zip(*columns, strict=True):
            if not isnan(value):
                by_seed.setdefault(seed, {})[client] = value
        return by_seed

    def _seed_deviations(self, method: str, point: str, seed: int, scores: Mapping[int, float]) -> Deviations | None:
        """The deviations of one seed, of these clients."""
        held = self.outcomes.get(method, {}).get((seed, point))
        if held is None or not scores:
            return None
        key = (method, point, seed, tuple(scores))
        if key not in self._deviations:
            self._deviations[key] = deviations(held, scores)
        return self._deviations[key]

    def _seeds(self, method: str, point: str) -> list[int]:
        rows = self.rows.get((method, point, LAST))
        return [] if rows is None else [int(seed) for seed in rows["seed"]]

    def evidence(self, method: str, point: str) -> Evidence | None:
        """How many test samples stand behind a method's score; None if a seed has no outcomes."""
        seeds = self._seeds(method, point)
        known = self.outcomes.get(method, {})
        outcomes = [known[seed, point] for seed in seeds if (seed, point) in known]
        return evidence(outcomes) if len(outcomes) == len(seeds) else None


def final_table(
    scores: FinalScores, estimators: Mapping[str, str] = MappingProxyType({}), baseline: str = BASELINE
) -> pd.DataFrame:
    """The test metric of each method at the last round, the best-val round and the best round on test.

    Columns: method, point, choice (`last`, `best_val`, `best_test`), estimator (what a client's score is averaged over;
    default `samples`), seeds (count), round (mean over seeds), mean over clients and seeds, sd (over seeds), low, high
    (95 % Student t over seeds; at the last round over test samples too, where outcomes were kept), pooled (over the
    test samples of all clients), weighted (mean over clients weighted by their test samples, of metrics that are no
    mean over samples but can be pooled), clients (evaluated), fewest_scored and most_scored (of the seeds: clients with
    a score), worst_tenth (of a seed's clients, mean over seeds) with its interval over seeds,
    spread (standard deviation over a seed's clients, divisor n, mean over seeds), and against the baseline, paired by
    client: gain, gain_low, gain_high, share_gains;
    intervals_over (what those of mean and gain cover); with `evaluate.common_test` also common, the mean over clients
    of
    the score on the test samples of all. Unknown numbers are NaN. `best_test` is chosen on test: optimistic.
    """
    rows = [
        {
            **dict(zip(("method", "point", "choice"), place, strict=True)),
            "estimator": estimators.get(place[0], SAMPLES),
            **_score_columns(scores, place),
            **(_of_clients(scores, place, baseline) if scores.clients else {}),
        }
        for place in scores.rows
    ]
    return pd.DataFrame(rows, columns=[*TABLE_COLUMNS, *([COMMON] if any(COMMON in row for row in rows) else [])])


def chosen_rows(metric: Metric, metrics: pd.DataFrame, point: str, choice: str) -> pd.DataFrame:
    """The metrics row of one point at the chosen round per seed; empty if the choice is impossible."""
    return _at_chosen_round(metric, metrics[metrics["point"] == point], choice)


def _at_chosen_round(metric: Metric, at_point: pd.DataFrame, choice: str) -> pd.DataFrame:
    split = CHOICES[choice]
    return at_last_round(at_point, metric) if split is None else at_best_round(at_point, metric, split)


def clients_at(clients: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of clients.parquet for the seeds, rounds and points of these rows of metrics."""
    names = ("seed", "round", "point")
    chosen = set(zip(*(rows[name].tolist() for name in names), strict=True))
    near = clients[np.isin(clients["round"].to_numpy(), rows["round"].to_numpy())]  # texts are slow to compare
    keys = zip(*(near[name].tolist() for name in names), strict=True)
    return near[np.array([key in chosen for key in keys], dtype=bool)].reset_index(drop=True)


def _score_columns(scores: FinalScores, place: ScorePlace) -> dict[str, float | str | None]:
    rows, score = scores.rows[place], scores.score(*place)
    counts = scored_counts(rows, scores.metric)
    common = known_interval(rows, f"{COMMON}_{scores.metric.name}", scores.metric)
    return {
        "round": rows["round"].mean(),
        **ends_of("worst_tenth", known_interval(rows, "test_worst_tenth", scores.metric)),
        "spread": rows["test_spread"].mean(),
        **score.columns(),
        "seeds": len(rows),
        **dict(zip(SCORED, (int(rows["clients"].max()), min(counts), max(counts)), strict=True)),
        "intervals_over": SEEDS_ALONE if score.samples is None else "seeds and test samples",
        **({} if common is None else {COMMON: common.mean}),
    }


def known_interval(rows: pd.DataFrame, column: str, metric: Metric) -> Interval | None:
    """A column of metrics with its interval over seeds alone; None if it is unknown. metric: whose values these are."""
    known = rows[column].dropna().tolist() if column in rows else []
    return interval(known, bounds=metric.bounds) if known else None


def _of_clients(scores: FinalScores, place: ScorePlace, baseline: str) -> dict[str, float | None]:
    """The pooled score, and what the clients gain over the baseline."""
    method, point, choice = place
    row = _means(scores, place)
    paired = scores.paired_clients(method, baseline, point, choice)
    error = scores.pair_error(method, baseline, point, paired) if choice == LAST and method != baseline else None
    gain = None if method == baseline else paired_difference(paired, error)
    return row if gain is None else {**row, **ends_of("gain", gain), "share_gains": share_that_gains(paired)}


def _means(scores: FinalScores, place: ScorePlace) -> dict[str, float | None]:
    """The pooled and the weighted score, mean over seeds, where they are known."""
    clients = scores.clients[place]
    values_by_name = {
        "pooled": pooled_scores(scores.metric, clients, scores.rows[place]),
        "weighted": weighted_scores(scores.metric, clients),
    }
    return {name: interval(values).mean for name, values in values_by_name.items() if values}


def weighted_scores(metric: Metric, clients: pd.DataFrame) -> list[float]:
    """The mean over clients, weighted by their test samples, per seed; empty unless pooled differs."""
    if not metric.pooled:
        return []
    return pooled_means(clients["seed"], clients[f"test_{metric.name}"], clients["test_n"]).tolist()


def pooled_scores(metric: Metric, clients: pd.DataFrame, rows: pd.DataFrame) -> list[float]:
    """The metric over all test samples of these clients per seed; empty if it is unknown.

    rows: the same of metrics, which have it where the metric is no mean over samples.
    """
    if not metric.over_samples:
        name = f"{POOLED}_{metric.name}"
        return rows[name].tolist() if name in rows and rows[name].notna().all() else []
    return pooled_values(metric, clients["seed"], clients[f"test_{metric.name}"], clients["test_n"]).tolist()
