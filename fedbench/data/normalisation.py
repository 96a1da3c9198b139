"""Mean and deviation per channel, measured on the samples that pass by."""

from typing import Protocol

import numpy as np


class MeanAndDeviation(Protocol):
    """Collects samples [b, C, ...] of one kind."""

    def add(self, samples: np.ndarray) -> None: ...

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        """Per channel; empty for what is not normalised."""


def constants_of(samples: np.ndarray) -> MeanAndDeviation:
    """What fits samples like these: pixels for uint8, features for floats, nothing for whole numbers (tokens)."""
    if samples.dtype == np.uint8:
        return Pixels()
    return Features() if np.issubdtype(samples.dtype, np.floating) else Tokens()


class Pixels:
    """Of pixels in [0, 1]; the deviation of a constant channel counts as 1."""

    def __init__(self) -> None:
        self.histogram = np.zeros((0, 256), np.int64)  # [channels, 256]

    def add(self, samples: np.ndarray) -> None:
        counts = [np.bincount(samples[:, c].ravel(), minlength=256) for c in range(samples.shape[1])]
        self.histogram = self.histogram + np.stack(counts) if len(self.histogram) else np.stack(counts)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        found = []
        for (
            counts
        ) in self.histogram.tolist():  # whole numbers of any size: a constant channel must come out as constant
            n, total = sum(counts), sum(v * k for v, k in enumerate(counts))
            spread = n * sum(v * v * k for v, k in enumerate(counts)) - total**2
            found.append((total / (255 * n), spread**0.5 / (255 * n) or 1.0))
        means, stds = zip(*found, strict=True)
        return list(means), list(stds)


class Features:
    """Of numbers as they are, in float64; the deviation of a constant feature counts as 1."""

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


class Tokens:
    """Whole numbers stay as they are."""

    def add(self, samples: np.ndarray) -> None:
        pass

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        return [], []
