"""Runs whose method is not at work: traced by the server half, so that their scores are not taken for the method's."""

import pandas as pd

DEGENERATE = "degenerate"
"""The trace of a round in which a method is not at work, 1."""


def degenerate_seeds(metrics: pd.DataFrame, traces: pd.DataFrame) -> list[int]:
    """The seeds that are degenerate at the last evaluated round after training, or in more than half of them."""
    marked = traces[(traces["name"] == DEGENERATE) & (traces["value"] == 1)]
    degenerate = []
    for seed in marked["seed"].unique().tolist():
        known = set(metrics.loc[(metrics["seed"] == seed) & (metrics["round"] > 0), "round"].tolist())
        rounds = known & set(marked.loc[marked["seed"] == seed, "round"].tolist())
        if rounds and (max(known) in rounds or len(rounds) > len(known) / 2):
            degenerate.append(int(seed))
    return sorted(degenerate)
