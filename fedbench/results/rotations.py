"""Simultaneous tests and intervals for several paired differences, by random rotations of their residuals.

Under the null hypothesis, normal residuals that are rotated have the same distribution, so rotations give the joint
distribution of the t statistics with their correlations, exactly for any number of seeds. Source: Langsrud, "Rotation
tests", Statistics and Computing 15 (2005), section 3.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

ROTATIONS = 20_000

DIGITS = 12
"""Decimals of a score; differences of equal accuracies are exactly 0 after rounding."""


@lru_cache(maxsize=16)
def directions(seeds: int, count: int = ROTATIONS) -> np.ndarray:
    """The same random unit vectors in every process, `[count, seeds]`."""
    drawn = np.random.default_rng(seeds).standard_normal((count, seeds))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


class Rotated:
    """Scores of K methods on n common seeds, `[n, K]`, with their rotations."""

    def __init__(self, scores: np.ndarray, count: int = ROTATIONS) -> None:
        self.scores = np.round(scores, DIGITS)
        self.seeds = len(scores)
        residuals = self.scores - self.scores.mean(0)
        self._moved = directions(self.seeds, count) @ residuals
        products = residuals.T @ residuals
        # Sums of squares of all differences; those of equal differences in all seeds are 0 but for rounding.
        squares = np.diagonal(products)[:, None] + np.diagonal(products) - 2 * products
        self._squares = np.where(squares > 10.0 ** (2 - 2 * DIGITS), squares, 0.0)

    def differences(self, of: Sequence[int], minus: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean differences of columns from another one, and their standard errors, `[k]` each."""
        means = self.scores.mean(0)
        errors = np.sqrt(self._squares[list(of), minus] / (self.seeds - 1) / self.seeds)
        return np.round(means[list(of)] - means[minus], DIGITS), errors

    def critical(self, of: Sequence[int], minus: int, level: float, two_sided: bool = True) -> float:
        """The number that the largest t statistic of these differences exceeds with this probability by chance."""
        found = self._largest(of, minus, two_sided)
        if not len(found):
            return np.inf
        size = max(1, round(level * len(found)))
        return self._as_t(float(np.partition(found, len(found) - size)[len(found) - size]))

    def adjusted_p(self, of: Sequence[int], minus: int) -> np.ndarray:
        """Two-sided p values `[k]` of these differences, adjusted step by step (Westfall and Young)."""
        means, errors = self.differences(of, minus)
        with np.errstate(divide="ignore", invalid="ignore"):
            seen = np.where(errors > 0, np.abs(means) / errors, np.where(means == 0, 0.0, np.inf))
        found, least = np.ones(len(means)), 0.0
        order = np.argsort(-seen, kind="stable")
        for place, own in enumerate(order):
            by_chance = self._largest([of[i] for i in order[place:]], minus, two_sided=True)
            limit = self._as_correlation(float(seen[own]))
            p = (1 + np.count_nonzero(by_chance >= limit)) / (1 + len(by_chance)) if len(by_chance) else 1.0
            least = max(least, 1.0 if seen[own] == 0 else p)
            found[own] = least
        return found

    def _largest(self, of: Sequence[int], minus: int, two_sided: bool) -> np.ndarray:
        """The largest statistic of every rotation, as a correlation in [-1, 1]; none if no difference varies."""
        own = [column for column in of if self._squares[column, minus] > 0]
        if not own:
            return np.zeros(0)
        statistics = (self._moved[:, own] - self._moved[:, [minus]]) / np.sqrt(self._squares[own, minus])
        largest: np.ndarray = (np.abs(statistics) if two_sided else statistics).max(1)
        return largest

    def _as_t(self, correlation: float) -> float:
        return float(correlation * np.sqrt((self.seeds - 1) / max(1e-300, 1 - correlation**2)))

    def _as_correlation(self, t: float) -> float:
        return 1.0 if np.isinf(t) else float(t / np.sqrt(self.seeds - 1 + t**2))
