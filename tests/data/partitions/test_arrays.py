"""Partitions of many clients as arrays: the same rows as in JSON, and what such a file cannot say."""

from pathlib import Path

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data.partitions import Partition, partition
from fedbench.errors import ConfigError
from tests.data.toys import EVEN

SMALL = {
    "train": [5, 0, 2, 7],
    "train_sizes": [3, 1],
    "val": [9],
    "val_sizes": [1, 0],
    "test": [1000, 1001],
    "test_sizes": [1, 1],
}


def deal(path: Path, seed: int = 0, clients: int = 2, **public) -> Partition:
    asked = {"name": "file", "path": str(path), "clients": clients}
    return partition(EVEN, Config(partition=asked, data={"val": 0.4}, public=public), seed)


def saved(path: Path, seed: int = 0, **changed) -> Path:
    np.savez(path, **{f"{seed}/{name}": np.array(values, np.int64) for name, values in (SMALL | changed).items()})
    return path


@pytest.mark.parametrize("public", [0, 30])
def test_a_partition_of_arrays_is_read_back_whole(tmp_path, public):
    asked = {"name": "dirichlet", "clients": 7}
    before = [partition(EVEN, Config(partition=asked, public={"size": public}), seed) for seed in (3, 4)]
    arrays = {f"{own.seed}/{name}": array for own in before for name, array in own.arrays().items()}
    np.savez(tmp_path / "p.npz", **arrays)
    for own in before:
        again = deal(tmp_path / "p.npz", own.seed, 7, size=public)
        assert again.fingerprint() == own.fingerprint()


def test_rows_keep_their_order_and_a_file_of_one_seed_serves_all(tmp_path):
    first, second = deal(saved(tmp_path / "p.npz", seed=8)).clients
    assert [first.train.tolist(), first.val.tolist(), first.test.tolist()] == [[5, 0, 2], [9], [1000]]
    assert [second.train.tolist(), second.val.tolist()] == [[7], []]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"train": [5, 0, 2, 1200]}, "row 1200 of train does not exist; the data set has rows 0 to 1199"),
        ({"train_sizes": [3, 1, 1]}, "the file has 3 clients, partition.clients = 2; set partition.clients 3"),
        ({"train_sizes": [3, 2]}, "train_sizes does not say who of 2 clients has which rows of train"),
        ({"val_sizes": [1]}, "val_sizes does not say who of 2 clients has which rows of val"),
        ({"train_sizes": [5, -1]}, "train_sizes must be whole numbers (int64)"),
        ({"train_sizes": [4, 0]}, "client 1: train has 0 rows; at least 1"),
        ({"val": [5]}, "client 0: row 5 is in train and in val"),
        ({"test": [[1000], [1001]]}, "test must be whole numbers (int64) in one dimension"),
    ],
)
def test_what_arrays_cannot_say(tmp_path, changed, told):
    with pytest.raises(ConfigError) as caught:
        deal(saved(tmp_path / "p.npz", **changed))
    assert told in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "p.npz"
    for content, told in (
        (None, "cannot be read"),
        (b"", "no complete partition"),
        (b"PK\x03\x04", "no complete partition"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=told):
            deal(path)
    np.savez(path, **{"0/train": np.arange(3), "1/train": np.arange(3)})
    with pytest.raises(ConfigError, match="no complete partition for seed 0"):
        deal(path)
    np.savez(path, **{"0/train": np.array([object()])})
    with pytest.raises(ConfigError, match="no complete partition for seed 0"):
        deal(path)
