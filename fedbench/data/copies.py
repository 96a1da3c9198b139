"""Samples that equal others, and test samples that are training samples too."""

import hashlib
from collections.abc import Iterator

import numpy as np

MANY = 0.1
"""From this share of the test samples on, the parts are probably drawn anew whenever they are read."""


class Copies:
    """Finds samples that equal an earlier one in every number. train: the number of training samples, the first ones.

    pairs: each such sample, and the first that it equals. count: those of the test part that equal a training sample.
    """

    def __init__(self, train: int) -> None:
        self.train, self.rows, self.first, self.count = train, 0, dict[bytes, int](), 0
        self.pairs = list[tuple[int, int]]()

    def add(self, samples: np.ndarray) -> None:
        """Takes the next samples, contiguous [b, ...]."""
        for sample in samples:
            digest = hashlib.blake2b(sample.tobytes(), digest_size=8).digest()
            first = self.first.setdefault(digest, self.rows)
            if first < self.rows:
                self.pairs.append((self.rows, first))
                self.count += first < self.train <= self.rows
            self.rows += 1

    def equal_rows(self) -> np.ndarray:
        """All samples that equal another, and the first one that they equal, int64 [k, 2]."""
        return np.array([*self.pairs, *((first, first) for first in {first for _, first in self.pairs})], np.int64)

    def remarks(self) -> Iterator[str]:
        tests = self.rows - self.train
        advice = ": where the parts are drawn at random, draw the same ones every time"
        if self.count:
            yield (
                f"{self.count} of {tests} test samples are training samples too, number for number"
                f"{advice if self.count > MANY * tests else ''}"
            )
