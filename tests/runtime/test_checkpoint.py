"""Checkpoints are whole or absent; a full disk leaves the one before."""

import shutil
from pathlib import Path

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.runtime import checkpoint, trees
from tests.runtime.rounds import largest_file

CONTENT = {"seed": 0, "states": {3: {"params": torch.arange(5.0)}}, "traces": {(1, "x"): 0.5}, "empty": torch.zeros(0)}


def loaded(folder: Path) -> dict:
    found = checkpoint.load(folder)
    assert found is not None
    return found[1]


def test_the_newest_is_read_and_older_ones_go(tmp_path):
    for round in (1, 2, 10):
        checkpoint.save(tmp_path, round, CONTENT | {"round": round})
    assert [path.name for path in tmp_path.iterdir()] == ["round-000010"]
    assert checkpoint.load(tmp_path)[0] == tmp_path / "round-000010"  # type: ignore[index]
    found = loaded(tmp_path)
    assert found["round"] == 10
    assert torch.equal(found["states"][3]["params"], torch.arange(5.0))
    assert found["traces"] == {(1, "x"): 0.5}


def test_none_where_there_is_none(tmp_path):
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "missing") is None


def test_an_unfinished_one_is_never_read(tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    (tmp_path / ".round-000002").mkdir()
    shutil.copy(tmp_path / "round-000001/driver.safetensors", tmp_path / ".round-000002")
    assert loaded(tmp_path)["round"] == 1
    checkpoint.save(tmp_path, 2, CONTENT | {"round": 2})
    assert loaded(tmp_path)["round"] == 2


@pytest.mark.parametrize("damage", [b"", b"PK", b"nothing that torch wrote", None])
def test_a_damaged_one_is_passed_over(damage, tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    whole = (tmp_path / "round-000001/driver.safetensors").read_bytes()
    (tmp_path / "round-000002").mkdir()
    (tmp_path / "round-000002/driver.safetensors").write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert loaded(tmp_path)["round"] == 1


def test_one_of_another_version_is_refused_in_one_line(tmp_path):
    (tmp_path / "round-000001").mkdir()
    trees.write(CONTENT, tmp_path / "round-000001/driver.safetensors")
    with pytest.raises(ConfigError, match="round-000001: written by another version of fedbench"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_counts_when_every_part_of_it_is_there(tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})

    def dies(folder: Path) -> None:
        trees.write({3: {}}, folder / "states-0.safetensors")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 2, CONTENT | {"round": 2}, dies)
    assert loaded(tmp_path)["round"] == 1


def test_a_full_disk_leaves_the_one_before(tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    with largest_file(10_000_000), pytest.raises(OSError, match="checkpoint of round 2 could not be written"):
        checkpoint.save(tmp_path, 2, {"large": torch.zeros(3_000_000)})
    assert [path.name for path in tmp_path.iterdir()] == ["round-000001"]
    assert loaded(tmp_path)["round"] == 1


def test_one_whose_place_is_being_taken_still_counts(tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    (tmp_path / "round-000001").rename(tmp_path / ".old-round-000001")
    assert loaded(tmp_path)["round"] == 1
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["round-000001"]
