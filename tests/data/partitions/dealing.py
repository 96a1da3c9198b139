"""Partitions of small sets, and what is refused of them."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from fedbench.errors import ConfigError
from tests.data.toys import EVEN


def deal(dataset: Dataset = EVEN, seed: int = 0, val: float = 0.1, public: int = 0, **options) -> Partition:
    return partition(dataset, Config(partition=options, data={"val": val}, public={"size": public}), seed)


def refused(dataset: Dataset = EVEN, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        deal(dataset, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def classes_of(rows: np.ndarray, dataset: Dataset = EVEN) -> list[int]:
    return np.unique(dataset.labels[rows]).tolist()


def doubles(held: np.ndarray) -> int:
    return int((np.diff(np.sort(held, axis=1), axis=1) == 0).sum())
