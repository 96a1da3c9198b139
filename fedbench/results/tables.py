"""The final table for reports and the terminal: one row per method, evaluation point and choice of round."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from fedbench.results.estimators import SAMPLES
from fedbench.results.reader import at_best_round, at_last_round
from fedbench.results.schema import POINTS
from fedbench.results.statistics import Interval, interval, paired_difference, pooled, share_that_gains
from fedbench.tasks import Metric

LAST, BEST_VAL, BEST_TEST = "last", "best_val", "best_test"
CHOICES = {LAST: None, BEST_VAL: "val", BEST_TEST: "test"}
"""The split whose metric chooses the round, or None."""
GAINS = ["gain", "gain_low", "gain_high", "share_gains"]
SCORES = ["mean", "sd", "low", "high", "pooled", "worst_tenth"]
COLUMNS = ["method", "point", "choice", "estimator", "seeds", "round", *SCORES, *GAINS]
BASELINE = "local"
REFERENCES = ("centralized",)
"""Methods that pool the clients' data are shown, but do not compete."""


def final_table(
    metric: Metric,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame] | None = None,
    baseline: str = BASELINE,
    estimators: Mapping[str, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """The test metric of each method at the last round, the best-val round and the best round on test.

    Columns: method, point, choice (`last`, `best_val`, `best_test`), estimator (what a client's score is averaged over;
    default `samples`), seeds (count), round (mean over seeds), mean over clients and seeds, sd (over seeds), low, high
    (95 % Student t over seeds), pooled (over the test samples of all clients), worst_tenth, and against the baseline,
    paired by client: gain, gain_low, gain_high, share_gains. Unknown numbers are NaN. `best_test` is chosen on test:
    optimistic.
    """
    rows = [
        {
            "method": method,
            "point": point,
            "choice": choice,
            "estimator": estimators.get(method, SAMPLES),
            **_row(metric, method, point, choice, metrics, clients, baseline),
        }
        for method, frame in metrics.items()
        for point in POINTS
        for choice in CHOICES
        if len(chosen(metric, frame, point, choice))
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def chosen(metric: Metric, metrics: pd.DataFrame, point: str, choice: str) -> pd.DataFrame:
    """The metrics row of one point at the chosen round per seed; empty if the choice is impossible."""
    at_point = metrics[metrics["point"] == point]
    split = CHOICES[choice]
    return at_last_round(at_point, metric) if split is None else at_best_round(at_point, metric, split)


def clients_at(clients: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of clients.parquet for the seeds, rounds and points of these rows of metrics."""
    return clients.merge(rows[["seed", "round", "point"]], on=["seed", "round", "point"])


def _row(
    metric: Metric,
    method: str,
    point: str,
    choice: str,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame] | None,
    baseline: str,
) -> dict[str, float | None]:
    rows = chosen(metric, metrics[method], point, choice)
    found = interval(rows[f"test_{metric.name}"].tolist())
    row: dict[str, float | None] = {
        "seeds": len(rows),
        "round": rows["round"].mean(),
        "worst_tenth": rows["test_worst_tenth"].mean(),
    }
    row |= {"mean": found.mean, "sd": found.sd, "low": found.low, "high": found.high}
    if clients is None:
        return row
    if over_all := pooled_scores(metric, clients_at(clients[method], rows)):
        row["pooled"] = interval(over_all).mean
    if method == baseline or baseline not in metrics:
        return row
    ours, theirs = pair(metric, method, baseline, point, choice, metrics, clients)
    gain = paired_difference(ours, theirs, metric)
    if gain is not None:
        row |= {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
        row["share_gains"] = share_that_gains(ours, theirs, metric)
    return row


def pooled_scores(metric: Metric, clients: pd.DataFrame) -> list[float]:
    """The metric over all test samples of these clients per seed; empty if it is not a mean over samples."""
    if not metric.over_samples:
        return []
    return pooled(clients["seed"], clients[f"test_{metric.name}"], clients["test_n"]).tolist()


def pair(
    metric: Metric,
    method: str,
    baseline: str,
    point: str,
    choice: str,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The clients of a method and of the baseline at one point, each at its own chosen round."""
    other = point if len(chosen(metric, metrics[baseline], point, choice)) else "after_agg"
    ours = clients_at(clients[method], chosen(metric, metrics[method], point, choice))
    return ours, clients_at(clients[baseline], chosen(metric, metrics[baseline], other, choice))


def difference(
    metric: Metric,
    method: str,
    baseline: str,
    point: str,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame],
) -> Interval | None:
    """How much better a method is than the baseline on test at the last round; None without pairs."""
    if baseline not in metrics or method not in metrics:
        return None
    return paired_difference(*pair(metric, method, baseline, point, LAST, metrics, clients), metric)
