"""Runs whose method is not at work: traced by the server half, so that their scores are not taken for the method's."""

import pandas as pd

DEGENERATE = "degenerate"
"""The trace of a round in which a method is not at work, 1."""


def degenerate_seeds(metrics: pd.DataFrame, traces: pd.DataFrame) -> list[int]:
    """The seeds that are degenerate at the last evaluated round after training, or in more than half of them."""
    marked = traces[(traces["name"] == DEGENERATE) & (traces["value"] == 1)]
    found = []
    for seed in marked["seed"].unique().tolist():
        known = set(metrics.loc[(metrics["seed"] == seed) & (metrics["round"] > 0), "round"].tolist())
        own = known & set(marked.loc[marked["seed"] == seed, "round"].tolist())
        if own and (max(known) in own or len(own) > len(known) / 2):
            found.append(int(seed))
    return sorted(found)
