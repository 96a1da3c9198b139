"""Partitions of small sets, and what is refused of them."""

from functools import partial

import numpy as np

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from tests.data import loading
from tests.data.toys import EVEN


def deal(dataset: Dataset = EVEN, seed: int = 0, val: float = 0.1, public: int = 0, **options) -> Partition:
    return partition(dataset, Config(partition=options, data={"val": val}, public={"size": public}), seed)


refused = partial(loading.refused, deal)


def classes_of(rows: np.ndarray, dataset: Dataset = EVEN) -> list[int]:
    return np.unique(dataset.labels[rows]).tolist()


def doubles(held: np.ndarray) -> int:
    return int((np.diff(np.sort(held, axis=1), axis=1) == 0).sum())
