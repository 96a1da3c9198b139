"""Scores and costs over rounds."""

import math

import numpy as np
import pandas as pd

from fedbench.results.reader import Records
from fedbench.results.summary import costs_of_a_client
from fedbench.tasks import Metric


def seed_curve(metric: Metric, metrics: pd.DataFrame, point: str, split: str = "test") -> pd.DataFrame:
    """Per round from 1 on, as shown: mean, lowest and highest over seeds, of the rounds that the most seeds reached."""
    curve = over_seeds(metrics[metrics["point"] == point], f"{split}_{metric.name}")
    curve[["mean", "min", "max"]] *= metric.factor
    return curve


def over_seeds(metrics: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean, lowest and highest value over seeds of any column as it is recorded, by round."""
    rounds, values = metrics["round"].to_numpy(), metrics[column].to_numpy(dtype=float)
    known = np.flatnonzero((rounds > 0) & ~np.isnan(values))
    known = known[np.argsort(rounds[known], kind="stable")]
    names, starts, counts = np.unique(rounds[known], return_index=True, return_counts=True)
    each = [
        round_values.tolist() for round_values, count in zip(np.split(values[known], starts[1:]), counts, strict=False)
    ]
    kept = np.flatnonzero(counts == counts.max(initial=0))
    means = [math.fsum(each[i]) / len(each[i]) for i in kept]
    ends = {"min": [min(each[i]) for i in kept], "max": [max(each[i]) for i in kept]}
    return pd.DataFrame({"round": names[kept], "mean": means, **ends})


def cost_so_far(run: Records, scores: pd.DataFrame, pooled: bool) -> pd.DataFrame:
    """The cost of a client so far, mean over clients and seeds, beside the score as shown.

    scores: the run's `seed_curve`. pooled: whether one model was trained on the data of all clients. Columns: round,
    sent (bytes, both ways), steps (of gradients), score.
    """
    metrics = run.metrics()
    rows = metrics[(metrics["point"] == "after_fit") & (metrics["round"] > 0)]  # in the order of seeds and rounds
    seeds, rounds = rows["seed"].to_numpy(), rows["round"].to_numpy()
    shares = costs_of_a_client(run.clients(), run.config(), rows, pooled).fillna(0)
    costs = np.column_stack([shares["bytes_up"] + shares["bytes_down"], shares["steps"]])  # [rows, 2]
    for of_seed in (seeds == seed for seed in np.unique(seeds)):
        costs[of_seed] = costs[of_seed].cumsum(axis=0)
    means = pd.DataFrame(costs, columns=["sent", "steps"]).groupby(rounds).mean()
    curve = scores.loc[scores["round"].isin(means.index), ["round", "mean"]].rename(columns={"mean": "score"})
    return means.loc[curve["round"]].rename_axis("round").reset_index().assign(score=curve["score"].to_numpy())
