"""Simultaneous tests and intervals for several paired differences, by random rotations of their residuals.

If all true differences are zero, normal differences that are rotated have the same distribution, so rotations show how
large the largest t statistic of a family becomes by chance, with the correlations of the family. p values rotate the
differences and are exact. Intervals, whose true differences are not zero, rotate the residuals: exact for a single
difference (the t test), with estimated correlations for several. Source: Langsrud, "Rotation tests", Statistics and
Computing 15 (2005), section 3.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

ROTATIONS = 20_000

DIGITS = 12
"""Decimals of a score; differences of equal accuracies are exactly 0 after rounding."""


@lru_cache(maxsize=16)
def directions(seeds: int, count: int = ROTATIONS) -> np.ndarray:
    """Random unit vectors, equal in every process, `[seeds, count]`."""
    drawn = np.random.default_rng(seeds).standard_normal((seeds, count))
    return (drawn / np.linalg.norm(drawn, axis=0)).astype(np.float32)


class RotatedScores:
    """Scores of K methods on n common seeds, `[n, K]`, with their rotations.

    means: of the methods, `[K]`. errors: standard errors of all paired differences, `[K, K]`. A difference that is the
    same in all seeds, but not 0, gets the error that it would have if one seed showed no difference: scores are
    rounded (accuracies to multiples of 1 / test samples), so few seeds often agree by chance.

    sample_variances: what the choice of test samples adds to the variances of all paired differences, `[K, K]`. It
    enlarges the errors; how large a t statistic gets by chance is that of the seeds alone.
    """

    def __init__(self, scores: np.ndarray, count: int = ROTATIONS, sample_variances: np.ndarray | None = None) -> None:
        self.scores = np.round(scores, DIGITS)
        self.seeds = len(scores)
        self.means = self.scores.mean(0)
        residuals = self.scores - self.means
        products = residuals.T @ residuals
        # Sums of squares of all differences; those of equal differences in all seeds are 0 but for rounding.
        squares = np.diagonal(products)[:, None] + np.diagonal(products) - 2 * products
        self._squares = np.where(squares > 10.0 ** (2 - 2 * DIGITS), squares, 0.0)
        gaps = np.abs(np.round(self.means[:, None] - self.means, DIGITS))
        spread = np.sqrt(self._squares / (self.seeds - 1) / self.seeds)
        self.errors = np.where(self._squares > 0, spread, gaps / (self.seeds - 1))
        if sample_variances is not None:
            self.errors = np.sqrt(self.errors**2 + sample_variances)
        # What all methods share in a seed is not part of any difference.
        alone = residuals - residuals.mean(1, keepdims=True)
        self._directions = directions(self.seeds, count)
        self._moved = alone.T.astype(np.float32) @ self._directions

    def differences(self, of: Sequence[int], minus: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean differences of columns from another one, and their standard errors, `[k]` each."""
        return np.round(self.means[list(of)] - self.means[minus], DIGITS), self.errors[list(of), minus]

    def critical(self, of: Sequence[int], minus: int, level: float, two_sided: bool = True) -> float:
        """The number that the largest t statistic of these differences exceeds with this probability by chance."""
        largest = self._largest(of, minus, two_sided)
        rank = len(largest) - max(1, round(level * len(largest)))
        return self._as_t(float(np.partition(largest, rank)[rank]))

    def adjusted_p(self, of: Sequence[int], minus: int) -> np.ndarray:
        """Two-sided p values `[k]` of these differences, adjusted step by step (Westfall and Young).

        The differences themselves are rotated, so that the family error is exact. All are 1 with two seeds.
        """
        if self.seeds < 3:
            return np.ones(len(of))
        means, errors = self.differences(of, minus)
        seen = np.divide(np.abs(means), errors, out=np.zeros(len(means)), where=errors > 0)
        values = np.round(self.scores[:, list(of)] - self.scores[:, [minus]], DIGITS)
        lengths = np.linalg.norm(values, axis=0)
        by_chance = np.abs((values / np.where(lengths > 0, lengths, 1)).T.astype(np.float32) @ self._directions)
        order = np.argsort(-seen, kind="stable")
        largest = np.maximum.accumulate(by_chance[order[::-1]])[::-1]
        limits = seen[order] / np.sqrt(self.seeds - 1 + seen[order] ** 2)
        p = (1 + np.count_nonzero(largest >= limits[:, None], axis=1)) / (1 + largest.shape[1])
        adjusted = np.ones(len(means))
        adjusted[order] = np.maximum.accumulate(p)
        return adjusted

    def _largest(self, of: Sequence[int], minus: int, two_sided: bool) -> np.ndarray:
        """The largest statistic of every rotation, as a correlation in [-1, 1]."""
        varying = [column for column in of if self._squares[column, minus] > 0]
        if not varying:
            return np.abs(self._directions[0]) if two_sided else self._directions[0]
        largest, difference = np.full(self._moved.shape[1], -1, np.float32), np.empty(self._moved.shape[1], np.float32)
        for column in varying:
            np.subtract(self._moved[column], self._moved[minus], out=difference)
            np.multiply(difference, np.float32(1 / np.sqrt(self._squares[column, minus])), out=difference)
            np.maximum(largest, np.abs(difference, out=difference) if two_sided else difference, out=largest)
        return largest

    def _as_t(self, correlation: float) -> float:
        return float(correlation * np.sqrt((self.seeds - 1) / max(1e-300, 1 - correlation**2)))
