"""Scores of newcomers: clients that join after the last round."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fedbench.config.words import plural
from fedbench.results.statistics import INTERVAL_COLUMNS, Interval, interval
from fedbench.tasks import Metric

NEWCOMER_COLUMNS = ["method", "epochs", "images", "newcomers", *INTERVAL_COLUMNS, "client_sd"]
ALL = 0
"""Stands for all training images of a newcomer."""


def newcomer_table(metric: Metric, newcomers: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The test metric of each method's newcomers by images (first 0: all) and local epochs.

    newcomers: `Records.newcomers` by method. Columns: method, epochs, images, newcomers (mean over seeds), seeds
    (count); mean, sd, low, high (95 % Student t) over seeds of the mean over a seed's newcomers; and client_sd, the
    standard deviation over a seed's newcomers (divisor n), mean over seeds.
    """
    rows = []
    for method, frame in newcomers.items():
        for images, epochs, scores in _cases(metric, frame):
            values = scores.groupby("seed")["value"]
            row = {"method": method, "epochs": epochs, "images": images, "newcomers": values.size().mean()}
            rows.append({**row, **_over_seeds(metric, scores).columns(), "client_sd": values.std(ddof=0).mean()})
    return pd.DataFrame(rows, columns=NEWCOMER_COLUMNS)


def newcomer_summary(metric: Metric, frame: pd.DataFrame) -> dict[str, Any]:
    """The part of summary.json: `{"epochs": {"0": ...}, "images": {"1": ...}}`, each an interval over seeds."""
    summary: dict[str, Any] = {"epochs": {}, "images": {}}
    for images, epochs, scores in _cases(metric, frame):
        kind, number = ("epochs", epochs) if images == ALL else ("images", images)
        summary[kind][str(number)] = _over_seeds(metric, scores).to_dict()
    return summary


def after_most_epochs(metric: Metric, frame: pd.DataFrame) -> Interval | None:
    """The score on all images after the most epochs, with its interval over seeds; None without newcomers."""
    values = scores_after_most_epochs(metric, frame)
    return interval(values.tolist(), bounds=metric.bounds) if len(values) else None


def scores_after_most_epochs(metric: Metric, frame: pd.DataFrame) -> pd.Series:
    """By seed the mean over newcomers on all images after the most epochs; empty without newcomers."""
    cases = {epochs: scores for images, epochs, scores in _cases(metric, frame) if images == ALL}
    return cases[max(cases)].groupby("seed")["value"].mean() if cases else pd.Series(dtype=float)


def newcomer_curve(metric: Metric, frame: pd.DataFrame) -> pd.DataFrame:
    """By local epochs on all images, as shown: mean, lowest and highest over seeds of the mean over newcomers."""
    scores = frame[(frame["metric"] == metric.name) & (frame["images"] == ALL)]
    seeds = scores.groupby(["epochs", "seed"])["value"].mean() * metric.factor
    return seeds.groupby("epochs").agg(["mean", "min", "max"]).reset_index()


def case_name(epochs: int, images: int) -> str:
    """`1 epoch`, `10 epochs`, or `5 images`."""
    return plural(epochs, "epoch") if images == ALL else plural(images, "sample")


def _cases(metric: Metric, frame: pd.DataFrame) -> Iterator[tuple[int, int, pd.DataFrame]]:
    """Images, epochs, and the rows of the metric."""
    known = frame[frame["metric"] == metric.name].dropna(subset=["value"])
    for _, scores in known.groupby(["images", "epochs"]):
        yield int(scores["images"].iloc[0]), int(scores["epochs"].iloc[0]), scores


def _over_seeds(metric: Metric, scores: pd.DataFrame) -> Interval:
    return interval(scores.groupby("seed")["value"].mean().tolist(), bounds=metric.bounds)
