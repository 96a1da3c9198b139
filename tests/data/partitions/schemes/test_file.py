"""Partitions from files, and that what a run leaves can be read again."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Partition, partition
from fedbench.errors import ConfigError
from tests.data import loading
from tests.data.toys import EVEN

SMALL = [{"train": [5, 0, 2], "val": [9], "test": [1000]}, {"train": [2, 7], "test": [1001, 3]}]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "clients.json"


def deal(path: Path | None, tree: Any = None, seed: int = 0, val: float = 0, public: int = 0, **options) -> Partition:
    if tree is not None:
        path.write_text(json.dumps(tree))
    asked = {"name": "file", "path": path and str(path), "clients": 2} | options
    return partition(EVEN, Config(partition=asked, data={"val": val}, public={"size": public}), seed)


refused = partial(loading.refused, deal)


def test_rows_are_those_of_the_file_in_its_order(path):
    first, second = deal(path, {"clients": SMALL}).clients
    assert [first.train.tolist(), first.val.tolist(), first.test.tolist()] == [[5, 0, 2], [9], [1000]]
    assert [second.train.tolist(), second.val.tolist(), second.test.tolist()] == [[2, 7], [], [1001, 3]]


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_test_images_that_another_client_trains_on_are_counted(tmp_path, suffix):
    path, elsewhere = tmp_path / f"clients.{suffix}", [{"train": [5, 0], "val": [9], "test": [1000, 7]}, *SMALL[1:]]
    elsewhere += [{"train": [1001, 8], "val": [], "test": [9, 3]}]
    if suffix == "npz":
        elsewhere[1] = elsewhere[1] | {"val": []}
        arrays = {f"0/{part}": [np.array(c[part], np.int64) for c in elsewhere] for part in ("train", "val", "test")}
        sizes = {f"{name}_sizes": np.array([len(own) for own in rows]) for name, rows in arrays.items()}
        np.savez(path, **{name: np.concatenate(rows) for name, rows in arrays.items()}, **sizes)
    dealt = deal(path, None if suffix == "npz" else {"clients": elsewhere}, clients=3)
    assert dealt.warnings == (
        "partition.path: 3 of 5 test samples (the first: row 7) are training or validation samples of another client: "
        "what is shared may have learnt them",
    )


def test_images_that_a_client_holds_twice_are_named(path):
    dealt = deal(path, {"clients": [{"train": [5, 0, 5], "test": [1000]}, {"train": [2], "test": [1001, 1001]}]})
    assert dealt.warnings == (
        "client 0 holds some training samples more than once",
        "client 1 holds some test samples more than once",
    )


def test_a_validation_part_is_held_out_where_a_client_brings_none(path):
    first, second = deal(path, {"clients": SMALL}, val=0.5).clients
    assert first.val.tolist() == [9]
    assert len(second.val) == len(second.train) == 1


@pytest.mark.parametrize("name", ["dirichlet", "pathological", "iid"])
def test_a_saved_partition_is_read_back_whole(path, name):
    asked = {"name": name, "clients": 2, "train_size": 50, "test_size": 10}
    before = partition(EVEN, Config(partition=asked, public={"size": 30}), 3)
    again = deal(path, before.tree(), val=0.4, public=30)
    assert again.fingerprint() == before.fingerprint()


def test_a_file_may_hold_a_partition_for_each_seed(path):
    tree = {"0": {"clients": SMALL}, "4": {"clients": SMALL[::-1], "class_counts": [[1]]}}
    assert deal(path, tree).clients[0].train.tolist() == [5, 0, 2]
    assert deal(path, seed=4).clients[0].train.tolist() == [2, 7]
    assert "nor an entry for seed 1; keys: 0, 4" in refused(path, seed=1)
    assert deal(path, {"0": {"clients": SMALL}}, seed=1).clients[0].train.tolist() == [5, 0, 2], "one serves all"


def test_a_public_set_is_the_files_or_of_images_that_nobody_holds(path):
    assert deal(path, {"clients": SMALL, "public": [40, 20]}).public is None
    assert deal(path, public=2).public.tolist() == [20, 40]
    drawn = deal(path, {"clients": SMALL}, public=970).public
    assert not np.isin(drawn, [0, 2, 3, 5, 7, 9]).any()


def test_a_file_is_found_from_any_directory(path, monkeypatch, tmp_path):
    path.write_text(json.dumps({"clients": SMALL}))
    monkeypatch.chdir(path.parent)
    config = Config(partition={"name": "file", "path": path.name, "clients": 2})
    monkeypatch.chdir("/")
    assert config.partition.path == path
    assert len(partition(EVEN, config, 0).clients) == 2


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ([], "expected an object with a list `clients`"),
        ({}, "neither a list `clients` nor an entry for seed 0; keys: none"),
        ({"clients": []}, "`clients` must be a list of at least 1 object"),
        ({"clients": SMALL * 2}, "the file has 4 clients, partition.clients = 2; set partition.clients 4"),
        ({"clients": [SMALL[0], [1]]}, "client 1 must be an object of `train`, `test` and perhaps `val`; it has list"),
        ({"clients": [SMALL[0], {"train": [1]}]}, "client 1 must be an object of `train`, `test` and perhaps `val`"),
        ({"clients": [SMALL[0], {"train": [1], "test": [2], "tset": [3]}]}, "it has train, test, tset"),
        ({"clients": [SMALL[0], {"train": [1], "test": []}]}, "client 1: test has 0 rows; at least 1"),
        ({"clients": [SMALL[0], {"train": [1.5], "test": [2]}]}, "client 1: train must be a list of whole numbers"),
        ({"clients": [SMALL[0], {"train": [True], "test": [2]}]}, "client 1: train must be a list of whole numbers"),
        ({"clients": [SMALL[0], {"train": 3, "test": [2]}]}, "client 1: train must be a list of whole numbers"),
        ({"clients": [SMALL[0], {"train": [1200], "test": [2]}]}, "train: row 1200 does not exist; the data set has"),
        (
            {"clients": [SMALL[0], {"train": [-1], "test": [2]}]},
            "row -1 does not exist; the data set has rows 0 to 1199",
        ),
        ({"clients": [SMALL[0], {"train": [1, 2], "test": [2]}]}, "client 1: row 2 is in train and in test (1 such"),
        ({"clients": [SMALL[0], {"train": [1], "val": [1], "test": [2]}]}, "row 1 is in train and in val"),
        ({"clients": SMALL, "public": [7, 8]}, "row 7 is public and held by a client (1 such rows)"),
        ({"clients": SMALL, "public": [7]}, "public.size = 2: the file of partition.path has 1 public rows"),
    ],
)
def test_what_a_file_cannot_say(path, tree, told):
    assert told in refused(path, tree, public=2)


def test_files_that_cannot_be_read(path):
    assert "cannot be read (No such file or directory)" in refused(path)
    path.write_text("{")
    assert "not valid JSON (" in refused(path)
    assert "set partition.path" in refused(None)


ARRAYS = {
    "train": [5, 0, 2, 7],
    "train_sizes": [3, 1],
    "val": [9],
    "val_sizes": [1, 0],
    "test": [1000, 1001],
    "test_sizes": [1, 1],
}


def deal_arrays(path: Path, seed: int = 0, clients: int = 2, new_clients: float = 0, **public) -> Partition:
    asked = {"name": "file", "path": str(path), "clients": clients, "new_clients": new_clients}
    return partition(EVEN, Config(partition=asked, data={"val": 0.4}, public=public), seed)


def saved(path: Path, seed: int = 0, **changed) -> Path:
    np.savez(path, **{f"{seed}/{name}": np.array(values, np.int64) for name, values in (ARRAYS | changed).items()})
    return path


@pytest.mark.parametrize("public", [0, 30])
def test_a_partition_of_arrays_is_read_back_whole(tmp_path, public):
    asked = {"name": "dirichlet", "clients": 7}
    before = [partition(EVEN, Config(partition=asked, public={"size": public}), seed) for seed in (3, 4)]
    arrays = {f"{own.seed}/{name}": array for own in before for name, array in own.arrays().items()}
    np.savez(tmp_path / "p.npz", **arrays)
    for own in before:
        again = deal_arrays(tmp_path / "p.npz", own.seed, 7, size=public)
        assert again.fingerprint() == own.fingerprint()


def test_rows_keep_their_order_and_a_file_of_one_seed_serves_all(tmp_path):
    first, second = deal_arrays(saved(tmp_path / "p.npz", seed=8)).clients
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
    assert told in loading.refused(deal_arrays, saved(tmp_path / "p.npz", **changed))


def test_files_of_arrays_that_cannot_be_read(tmp_path):
    path = tmp_path / "p.npz"
    for content, told in (
        (None, "cannot be read"),
        (b"", "no complete partition"),
        (b"PK\x03\x04", "no complete partition"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=told):
            deal_arrays(path)
    np.savez(path, **{"0/train": np.arange(3), "1/train": np.arange(3)})
    with pytest.raises(ConfigError, match="no complete partition for seed 0"):
        deal_arrays(path)
    np.savez(path, **{"0/train": np.array([object()])})
    with pytest.raises(ConfigError, match="no complete partition for seed 0"):
        deal_arrays(path)


def test_incomplete_newcomers_of_arrays_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"no complete partition for seed 0 .*newcomers_train_sizes"):
        deal_arrays(saved(tmp_path / "p.npz", newcomers_train=[3]), clients=3, new_clients=1)
    whole = {f"newcomers_{name}": values for name, values in ARRAYS.items()}
    with pytest.raises(ConfigError, match="newcomers_val must be whole numbers"):
        deal_arrays(saved(tmp_path / "p.npz", **(whole | {"newcomers_val": [[3]]})), clients=4, new_clients=2)


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_files_whose_numbers_mean_rows_of_other_parts_are_refused(tmp_path, suffix):
    table = replace(EVEN, train_rows=len(EVEN.targets))
    whole = partition(table, Config(partition={"name": "iid", "clients": 2}), 0)

    def ask(parts: list[int]) -> Partition:
        path = tmp_path / f"clients.{suffix}"
        if suffix == "json":
            path.write_text(json.dumps({"0": {**whole.tree(), "parts": parts}}))
        else:
            arrays = whole.arrays() | {"parts": np.array(parts)}
            np.savez(path, **{f"0/{name}": own for name, own in arrays.items()})
        return partition(table, Config(partition={"name": "file", "path": path, "clients": 2}), 0)

    assert ask([1200, 0]).fingerprint() == whole.fingerprint()
    with pytest.raises(ConfigError, match=r"parts of \[960, 240\] rows, and these have \[1200, 0\]; take the data of"):
        ask([960, 240])


def test_a_file_by_hand_numbers_the_rows_of_one_part_as_they_lie(tmp_path):
    table, path = replace(EVEN, train_rows=len(EVEN.targets)), tmp_path / "clients.json"
    path.write_text(json.dumps({"clients": SMALL}))
    found = partition(table, Config(partition={"name": "file", "path": path, "clients": 2}, data={"val": 0}), 0)
    assert found.clients[0].test.tolist() == [1000]
    assert not any("one part" in line for line in found.warnings)
