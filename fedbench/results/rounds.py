"""Which round of a run counts: the last evaluated one, or the best."""

import numpy as np
import pandas as pd

from fedbench.tasks import Metric


def at_last_round(metrics: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The row of the last evaluated round per seed and point; none if its score is not finite (diverged)."""
    last = metrics.iloc[_first_largest(metrics, metrics["round"].to_numpy())]
    return last[last[f"test_{metric.name}"].notna()].reset_index(drop=True)


def at_best_round(metrics: pd.DataFrame, metric: Metric, split: str = "val") -> pd.DataFrame:
    """The row of the best round by this split per seed and point (the first if tied); round 0 does not count."""
    by = f"{split}_{metric.name}"
    tested = metrics[(metrics["round"] > 0) & metrics[f"test_{metric.name}"].notna() & metrics[by].notna()]
    scores = tested[by].to_numpy()
    return tested.iloc[_first_largest(tested, scores if metric.higher else -scores)].reset_index(drop=True)


def _first_largest(metrics: pd.DataFrame, values: np.ndarray) -> list[int]:
    """The place of the largest value, the first if tied, per seed and point, in the order of their first rows.

    A report asks this hundreds of times, and a group-by takes milliseconds.
    """
    best: dict[tuple[int, str], int] = {}
    for row, key in enumerate(zip(metrics["seed"].tolist(), metrics["point"].tolist(), strict=True)):
        if key not in best or values[row] > values[best[key]]:
            best[key] = row
    return list(best.values())
