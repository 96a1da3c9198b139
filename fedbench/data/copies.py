"""Test samples that are training samples too."""

import hashlib
from collections.abc import Iterator

import numpy as np

MANY = 0.1
"""From this share of the test samples on, the parts are probably drawn anew whenever they are read."""


class Copies:
    """Counts test samples that equal a training sample in every number. train: the number of training samples."""

    def __init__(self, train: int) -> None:
        self.train, self.rows, self.digests, self.count = train, 0, set[bytes](), 0

    def add(self, samples: np.ndarray) -> None:
        """Takes the next samples, contiguous [b, ...]."""
        for sample in samples:
            digest = hashlib.blake2b(sample.tobytes(), digest_size=8).digest()
            if self.rows < self.train:
                self.digests.add(digest)
            else:
                self.count += digest in self.digests
            self.rows += 1

    def remarks(self) -> Iterator[str]:
        tests = self.rows - self.train
        advice = ": where the parts are drawn at random, draw the same ones every time"
        if self.count:
            yield (
                f"{self.count} of {tests} test samples are training samples too, number for number"
                f"{advice if self.count > MANY * tests else ''}"
            )
