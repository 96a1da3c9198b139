"""The intervals of paired differences between methods after some number of seeds, with and without outlying seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedbench.results.rotations import DIGITS, RotatedScores
from fedbench.results.verdict import Bound

OUTLYING = 5.0
"""Median absolute deviations from the median beyond which a seed is an outlier."""


class Look:
    """Scores after a look, with the intervals of their paired differences.

    added: what the choice of test samples adds to the variances of all differences, `[K, K]`, or None.
    """

    def __init__(
        self, scores: np.ndarray, running: Sequence[str], rotations: int, added: np.ndarray | None = None
    ) -> None:
        self.added = np.zeros((len(running), len(running))) if added is None else added
        self.rotated, self.seeds = RotatedScores(scores, rotations, self.added), len(scores)
        self.place = {method: number for number, method in enumerate(running)}
        self._kept_means, kept_errors = without_outliers(self.rotated.scores)
        self._kept_errors = np.sqrt(kept_errors**2 + self.added)

    def critical(self, of: Sequence[str], minus: str, level: float, two_sided: bool) -> float:
        return self.rotated.critical([self.place[method] for method in of], self.place[minus], level, two_sided)

    def mean(self, method: str) -> float:
        return float(self.rotated.means[self.place[method]])

    def bound(self, of: str, minus: str, critical: float) -> Bound:
        one, other = self.place[of], self.place[minus]
        mean, error = self.rotated.means[one] - self.rotated.means[other], self.rotated.errors[one, other]
        mean, half = round(float(mean), DIGITS), critical * float(error)
        return Bound(mean, mean - half, mean + half, float(error), self.seeds, float(np.sqrt(self.added[one, other])))

    def cautious(self, of: str, minus: str, critical: float) -> Bound:
        """A bound that is wide enough to hold the interval without outlying seeds as well."""
        plain, pair = self.bound(of, minus, critical), (self.place[of], self.place[minus])
        mean, half = float(self._kept_means[pair]), critical * float(self._kept_errors[pair])
        return replace(plain, low=min(plain.low, mean - half), high=max(plain.high, mean + half))

    def leads(self, critical: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """How far methods (rows) are ahead of others (columns) at the least, the second time cautiously.

        critical: of the family of each method that is compared with all others, a column.
        """
        block, each = np.ix_(*2 * [[self.place[method] for method in critical]]), np.array([*critical.values()])
        gaps = np.round(self.rotated.means[:, None] - self.rotated.means, DIGITS)
        plain = gaps[block] - each * self.rotated.errors[block]
        np.fill_diagonal(plain, -np.inf)
        return plain, np.minimum(plain, self._kept_means[block] - each * self._kept_errors[block])


def without_outliers(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors `[K, K]` of paired differences without the seeds that lie far from the others.

    Those of all seeds if none does, or if more than half of the seeds show the same difference.
    """
    values = scores[:, :, None] - scores[:, None, :]
    away = np.abs(values - np.median(values, axis=0))
    typical = np.median(away, axis=0)
    kept = (away <= OUTLYING * typical) | (typical == 0)
    count = kept.sum(0)
    means = (values * kept).sum(0) / count
    squares = (kept * (values - means) ** 2).sum(0)
    return means, np.sqrt(squares / (count - 1) / count)
