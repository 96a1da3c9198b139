"""Mean and standard deviation per channel, measured while samples are read."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from fedbench.tasks.class_numbers import NAMES_SHOWN

CODES = 1000
"""Integers below this may be category codes; larger ones are amounts."""


class MeanAndDeviation(Protocol):
    """Accumulates samples [b, C, ...] of one kind."""

    def add(self, samples: np.ndarray) -> None: ...

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        """Per channel; empty if samples are not normalised."""

    def remarks(self) -> Iterable[str]:
        """Remarks for the reader."""


def moments_of(samples: np.ndarray, categories: bool = False) -> MeanAndDeviation:
    """The accumulator for these samples: pixels for uint8, features for floats, none for integers (tokens).

    categories: whether columns of rows may hold category codes.
    """
    if samples.dtype == np.uint8:
        return PixelMoments()
    if not np.issubdtype(samples.dtype, np.floating):
        return TokenMoments()
    return RowMoments(samples.shape[1]) if categories and samples.ndim == 2 else FeatureMoments()


class PixelMoments:
    """Statistics of pixels in [0, 1]; the deviation of a constant channel counts as 1."""

    def __init__(self) -> None:
        self.histogram = np.zeros((0, 256), np.int64)  # [channels, 256]

    def add(self, samples: np.ndarray) -> None:
        counts = [np.bincount(samples[:, c].ravel(), minlength=256) for c in range(samples.shape[1])]
        self.histogram = self.histogram + np.stack(counts) if len(self.histogram) else np.stack(counts)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        found = []
        for (
            counts
        ) in self.histogram.tolist():  # integers of any size, so that a constant channel is recognised as constant
            n, total = sum(counts), sum(v * k for v, k in enumerate(counts))
            spread = n * sum(v * v * k for v, k in enumerate(counts)) - total**2
            found.append((total / (255 * n), spread**0.5 / (255 * n) or 1.0))
        means, stds = zip(*found, strict=True)
        return list(means), list(stds)

    def remarks(self) -> Iterable[str]:
        return ()


class FeatureMoments:
    """Statistics of features in float64; the deviation of a constant feature counts as 1."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(1), np.zeros(1)  # squares: of the distances from the mean

    def add(self, samples: np.ndarray) -> None:
        if not len(samples):
            return
        values = np.moveaxis(samples, 1, 0).reshape(samples.shape[1], -1).astype(np.float64)  # [C, b * ...]
        count, mean = values.shape[1], values.mean(1)
        gap, total = mean - self.mean, self.count + count
        self.squares = self.squares + np.square(values - mean[:, None]).sum(1) + gap**2 * self.count * count / total
        self.mean, self.count = self.mean + gap * count / total, total

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        return self.mean.tolist(), [value or 1.0 for value in np.sqrt(self.squares / self.count).tolist()]

    def remarks(self) -> Iterable[str]:
        return ()


class RowMoments(FeatureMoments):
    """Features of rows [b, C], of which some columns may hold category codes, which are not standardised.

    Codes are small integers from 0 or 1 that use most of their range, in a row with other columns of any numbers.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.whole, self.small = np.ones(columns, bool), np.ones(columns, bool)
        self.occurs = np.zeros((columns, CODES), bool)

    def add(self, samples: np.ndarray) -> None:
        super().add(samples)
        if not len(samples):
            return
        self.whole &= (samples == np.floor(samples)).all(axis=0)
        self.small &= self.whole & ((samples >= 0) & (samples < CODES)).all(axis=0)
        columns = np.flatnonzero(self.small)
        self.occurs[columns[None], samples[:, columns].astype(np.int64)] = True

    @property
    def codes(self) -> np.ndarray:
        """The columns of categories, ascending."""
        different = self.occurs.sum(axis=1)
        first, last = self.occurs.argmax(axis=1), CODES - 1 - self.occurs[:, ::-1].argmax(axis=1)
        dense = (first <= 1) & (different > 1) & (2 * different >= last - first + 1)
        return np.flatnonzero(self.small & dense) if not self.whole.all() else np.zeros(0, np.int64)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        mean, std = super().mean_and_std()
        for column in self.codes.tolist():
            mean[column], std[column] = 0.0, 1.0
        return mean, std

    def remarks(self) -> Iterable[str]:
        codes = self.codes
        if len(codes):
            amounts = np.setdiff1d(np.flatnonzero(self.whole & (np.sqrt(self.squares) > 0)), codes)
            others = f"columns {_listed(amounts)} of other whole numbers" if len(amounts) else "the others"
            yield (
                f"columns {_listed(codes)} look like category codes and are not standardised, {others} are "
                "standardised; data.mean and data.std, a value per column, change that"
            )
        elif self.whole.all():
            yield "every column holds whole numbers and is standardised; --data.mean 0 --data.std 1 if they are codes"


def _listed(columns: np.ndarray) -> str:
    return ", ".join(map(str, columns[:NAMES_SHOWN])) + (", ..." if len(columns) > NAMES_SHOWN else "")


class TokenMoments:
    """Integers are not normalised."""

    def add(self, samples: np.ndarray) -> None:
        pass

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        return [], []

    def remarks(self) -> Iterable[str]:
        return ()
