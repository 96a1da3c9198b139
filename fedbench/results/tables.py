"""The final table for reports and the terminal: one row per method, evaluation point and choice of round."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from fedbench.results.estimators import SAMPLES
from fedbench.results.reader import at_best_round, at_last_round
from fedbench.results.schema import COMMON, POINTS
from fedbench.results.statistics import (
    Interval,
    client_pairs,
    ends_of,
    interval,
    paired_difference,
    pooled_means,
    share_that_gains,
)
from fedbench.tasks import Metric

LAST, BEST_VAL, BEST_TEST = "last", "best_val", "best_test"
CHOICES = {LAST: None, BEST_VAL: "val", BEST_TEST: "test"}
"""The split whose metric chooses the round, or None."""
GAINS = ["gain", "gain_low", "gain_high", "share_gains"]
SCORE_COLUMNS = ["mean", "sd", "low", "high", "pooled", "worst_tenth", "worst_tenth_low", "worst_tenth_high", "spread"]
TABLE_COLUMNS = ["method", "point", "choice", "estimator", "seeds", "round", *SCORE_COLUMNS, *GAINS]
BASELINE = "local"
REFERENCES = ("centralized",)
"""Methods that pool the clients' data are shown, but do not compete."""
PAIRED = ["seed", "client", "ours", "theirs", "difference"]
ScorePlace = tuple[str, str, str]
"""A row of the final table: method, point, choice."""


@dataclass(frozen=True)
class FinalScores:
    """What methods reached, by method, point and choice of the round, as far as the choice can be made.

    rows: of metrics.jsonl, one per seed. clients: of clients.parquet, at the same seeds and rounds; none where only
    metrics are known.
    """

    metric: Metric
    rows: Mapping[ScorePlace, pd.DataFrame]
    clients: Mapping[ScorePlace, pd.DataFrame]

    @classmethod
    def of(
        cls, metric: Metric, metrics: Mapping[str, pd.DataFrame], clients: Mapping[str, pd.DataFrame] | None = None
    ) -> "FinalScores":
        rows: dict[ScorePlace, pd.DataFrame] = {
            (method, point, choice): found
            for method, frame in metrics.items()
            for point in POINTS
            for at_point in [frame[frame["point"] == point]]
            for choice in CHOICES
            if len(found := _at_chosen_round(metric, at_point, choice))
        }
        own = {} if clients is None else {place: clients_at(clients[place[0]], found) for place, found in rows.items()}
        return cls(metric, rows, own)

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
        return paired_difference(self.paired_clients(method, other, point))


def final_table(
    scores: FinalScores, estimators: Mapping[str, str] = MappingProxyType({}), baseline: str = BASELINE
) -> pd.DataFrame:
    """The test metric of each method at the last round, the best-val round and the best round on test.

    Columns: method, point, choice (`last`, `best_val`, `best_test`), estimator (what a client's score is averaged over;
    default `samples`), seeds (count), round (mean over seeds), mean over clients and seeds, sd (over seeds), low, high
    (95 % Student t over seeds), pooled (over the test samples of all clients), worst_tenth (of a seed's clients, mean
    over seeds) with its interval over seeds, spread (standard deviation over a seed's clients, divisor n, mean over
    seeds), and against the baseline, paired by client: gain, gain_low, gain_high, share_gains; with
    `evaluate.common_test` also common, the mean over clients of the score on the test samples of all. Unknown numbers
    are NaN. `best_test` is chosen on test: optimistic.
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
    places = zip(*(near[name].tolist() for name in names), strict=True)
    return near[np.array([place in chosen for place in places], dtype=bool)].reset_index(drop=True)


def _score_columns(scores: FinalScores, place: ScorePlace) -> dict[str, float | None]:
    rows = scores.rows[place]
    common = known_interval(rows, f"{COMMON}_{scores.metric.name}")
    return {
        "round": rows["round"].mean(),
        **ends_of("worst_tenth", known_interval(rows, "test_worst_tenth")),
        "spread": rows["test_spread"].mean(),
        **interval(rows[f"test_{scores.metric.name}"].tolist()).columns(),
        "seeds": len(rows),
        **({} if common is None else {COMMON: common.mean}),
    }


def known_interval(rows: pd.DataFrame, column: str) -> Interval | None:
    """A column of metrics with its interval over seeds; None if it is unknown."""
    known = rows[column].dropna().tolist() if column in rows else []
    return interval(known) if known else None


def _of_clients(scores: FinalScores, place: ScorePlace, baseline: str) -> dict[str, float | None]:
    """The pooled score, and what the clients gain over the baseline."""
    method, point, choice = place
    over_all = pooled_scores(scores.metric, scores.clients[place])
    row: dict[str, float | None] = {"pooled": interval(over_all).mean} if over_all else {}
    paired = scores.paired_clients(method, baseline, point, choice)
    gain = None if method == baseline else paired_difference(paired)
    return row if gain is None else {**row, **ends_of("gain", gain), "share_gains": share_that_gains(paired)}


def pooled_scores(metric: Metric, clients: pd.DataFrame) -> list[float]:
    """The metric over all test samples of these clients per seed; empty if it is not a mean over samples."""
    if not metric.over_samples:
        return []
    values = clients[f"test_{metric.name}"]
    found = pooled_means(clients["seed"], np.log(values) if metric.log_mean else values, clients["test_n"])
    return (np.exp(found) if metric.log_mean else found).tolist()
