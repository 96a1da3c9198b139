"""Samples that equal others, and those that stand in two parts."""

import hashlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

MANY = 0.1
"""From this share of a part on, the parts are probably drawn anew whenever they are read."""


class Copies:
    """Finds samples that equal an earlier one in every number. train, val: the numbers of samples of these parts.

    They come in the order of training, validation and test. pairs: each such sample, and the first that it equals.
    counts: how many samples of one part equal first one of another, by the two.
    """

    def __init__(self, train: int, val: int = 0) -> None:
        self.train, self.val, self.rows, self.first = train, val, 0, dict[bytes, int]()
        self.pairs = list[tuple[int, int]]()
        self.counts = Counter[tuple[str, str]]()

    def add(self, samples: np.ndarray) -> None:
        """Takes the next samples, contiguous [b, ...]."""
        for sample in samples:
            digest = hashlib.blake2b(sample.tobytes(), digest_size=8).digest()
            first = self.first.setdefault(digest, self.rows)
            if first < self.rows:
                self.pairs.append((self.rows, first))
                self.counts[self._part_of(self.rows), self._part_of(first)] += 1
            self.rows += 1

    def _part_of(self, row: int) -> str:
        return "training" if row < self.train else "validation" if row < self.train + self.val else "test"

    def equal_rows(self) -> np.ndarray:
        """All samples that equal another, and the first one that they equal, int64 [k, 2]."""
        return np.array([*self.pairs, *((first, first) for first in {first for _, first in self.pairs})], np.int64)

    def remarks(self) -> Iterator[str]:
        sizes = {"validation": self.val, "test": self.rows - self.train - self.val}
        for (part, other), count in sorted(self.counts.items(), reverse=True):
            if part != other:
                many = count > MANY * sizes[part]
                yield (
                    f"{count} of {sizes[part]} {part} samples are {other} samples too, number for number"
                    f"{': where the parts are drawn at random, draw the same ones every time' if many else ''}"
                )
