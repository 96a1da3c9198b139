"""Runs whose method is not at work: traced by the server half, so that their scores are not taken for the method's."""

import pandas as pd

DEGENERATE = "degenerate"
"""The trace of a round in which a method is not at work, 1."""


def degenerate_seeds(metrics: pd.DataFrame, traces: pd.DataFrame) -> list[int]:
    """The seeds that are degenerate at the last evaluated round after training, or in more than half of them."""
    rounds = metrics[metrics["round"] > 0].groupby("seed")["round"].unique()
    own = traces[(traces["name"] == DEGENERATE) & (traces["value"] == 1)].groupby("seed")["round"].unique()
    found = []
    for seed, marked in own.items():
        known = set(rounds.get(seed, ()))
        count = len(known & set(marked))
        if count and (max(known) in marked or count > len(known) / 2):
            found.append(int(seed))
    return found
