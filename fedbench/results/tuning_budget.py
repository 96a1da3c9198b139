"""What tuning over k points reaches on average: how a comparison depends on its tuning budget.

Source: Dodge et al., "Show your work: improved reporting of experimental results", EMNLP 2019, who draw the k points
with replacement. Here they are drawn without, as a search tries each point once: for points of a random search the
estimate is then unbiased (Tang et al., "Showing your work doesn't always work", ACL 2020), and for a grid it is the
exact mean over all choices of k of its points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BudgetCurve:
    """Expected scores after k = 1, ..., n points, `[n]`: validation of the best, and test of that point, if known."""

    validation: np.ndarray
    test: np.ndarray | None


def tuning_budget(validation: Sequence[float], test: Sequence[float] | None = None, higher: bool = True) -> BudgetCurve:
    """Expected scores of the point that is best on validation, among k of these n points.

    Of equal points the first one counts as the best, as in a study.
    """
    values = np.asarray(validation, dtype=float)
    # Ascending, and of equal ones the first one last.
    order = np.lexsort((-np.arange(len(values)), values if higher else -values))
    chances = chances_of_best(len(values))
    tested = None if test is None else chances @ np.asarray(test, dtype=float)[order]
    return BudgetCurve(chances @ values[order], tested)


def chances_of_best(points: int) -> np.ndarray:
    """The probability that the i-th point from below is the best of k drawn without replacement, `[k, i]`.

    C(i - 1, k - 1) / C(n, k): k/n for the best one, then from point to point (i - k) / (i - 1).
    """
    k, i = np.arange(1, points + 1)[:, None], np.arange(points, 1, -1)
    steps = np.clip(i - k, 0, None) / (i - 1)  # [k, n - 1], from the best point downwards
    chances = np.cumprod(np.hstack([k / points, steps]), axis=1)
    return np.asarray(chances[:, ::-1])
