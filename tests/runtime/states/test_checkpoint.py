"""Checkpoints are whole or absent; a full disk leaves the one before."""

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.runtime.states import checkpoint, trees
from fedbench.runtime.states.checkpoint import Checkpoints
from fedbench.runtime.states.store import MemoryStore, Versions
from tests.runtime.rounds import largest_file

CONTENT = {"seed": 0, "states": {3: {"params": torch.arange(5.0)}}, "traces": {(1, "x"): 0.5}, "empty": torch.zeros(0)}
FIRST, SECOND = "round-000001.safetensors", "round-000002.safetensors"


def loaded(folder: Path) -> dict:
    found = checkpoint.load(folder)
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_newest_is_read_and_older_ones_go(tmp_path):
    for round in (1, 2, 10):
        checkpoint.save(tmp_path, round, CONTENT | {"round": round})
    assert names(tmp_path) == ["round-000010.safetensors"]
    found = loaded(tmp_path)
    assert found["round"] == 10
    assert torch.equal(found["states"][3]["params"], torch.arange(5.0))
    assert found["traces"] == {(1, "x"): 0.5}


def test_none_where_there_is_none(tmp_path):
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "missing") is None


def test_an_unfinished_one_is_never_read_and_goes_with_the_next(tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    (tmp_path / f".{SECOND}.part").write_bytes((tmp_path / FIRST).read_bytes())
    assert loaded(tmp_path)["round"] == 1
    checkpoint.save(tmp_path, 3, CONTENT | {"round": 3})
    assert names(tmp_path) == ["round-000003.safetensors"]


@pytest.mark.parametrize("damage", [b"", b"PK", b"nothing that torch wrote", None])
def test_a_damaged_one_is_passed_over(damage, tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    whole = (tmp_path / FIRST).read_bytes()
    (tmp_path / SECOND).write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert loaded(tmp_path)["round"] == 1
    (tmp_path / FIRST).unlink()
    with pytest.raises(ConfigError, match=f"{SECOND}: damaged; .*delete {tmp_path.parent} to run it again"):
        checkpoint.load(tmp_path)


def test_one_of_another_version_is_refused_in_one_line(tmp_path):
    trees.write(CONTENT, tmp_path / FIRST)
    with pytest.raises(ConfigError, match=f"{FIRST}: damaged, or written by another version of fedbench"):
        checkpoint.load(tmp_path)


def test_one_in_a_folder_of_its_own_is_of_another_version_too(tmp_path):
    (tmp_path / "round-000001").mkdir()
    with pytest.raises(ConfigError, match="round-000001: damaged, or written by another version of fedbench"):
        checkpoint.load(tmp_path)


def test_a_full_disk_leaves_the_one_before(tmp_path):
    checkpoint.save(tmp_path, 1, CONTENT | {"round": 1})
    with largest_file(10_000_000), pytest.raises(OSError):
        checkpoint.save(tmp_path, 2, {"large": torch.zeros(3_000_000)})
    assert names(tmp_path) == [FIRST]
    assert loaded(tmp_path)["round"] == 1


class Keeping:
    """A host whose two clients are trained by turns, and the checkpoints of its run."""

    def __init__(self, folder: Path, every: int = 1) -> None:
        self.store, self.versions = MemoryStore(), dict[int, int]()
        self.kept = Checkpoints(folder, every, 100)  # type: ignore[arg-type]

    def train(self, client: int, round: int) -> None:
        self.store.save(client, round, {"params": torch.full((5,), float(round))})
        self.versions[client] = round

    def keep(self, round: int) -> None:
        self.kept.keep(round, lambda: {"round": round, "kept": dict(self.versions)}, [self.versions], self._snapshot)

    def _snapshot(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        self.store.snapshot(versions[0], paths[0])


def test_every_checkpoint_has_the_states_of_its_round(tmp_path):
    run = Keeping(tmp_path)
    for round in range(1, 8):
        run.train(round % 2, round)
        run.keep(round)
        found, anew = loaded(tmp_path), MemoryStore()
        anew.restore(found["kept"], run.kept.shards(found))
        held = {client: float(anew.load(client, kept)["params"][0]) for client, kept in found["kept"].items()}
        assert held == run.versions


def test_one_that_does_not_come_about_leaves_the_one_before_with_its_states(tmp_path):
    run = Keeping(tmp_path)
    run.train(0, 1)
    run.keep(1)
    run.train(0, 2)

    def dies() -> dict:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"checkpoint of round 2 could not be written: .*No space"):
        run.kept.keep(2, dies, [run.versions], run._snapshot)
    found = loaded(tmp_path)
    assert found["round"] == 1
    assert run.kept.shards(found) == [tmp_path / "states" / "000001-0.safetensors"]


@pytest.mark.parametrize(("every", "rounds"), [(0, []), (1, [1, 2, 3, 4, 5]), (2, [2, 4]), (5, [5]), (6, [])])
def test_they_come_every_so_many_rounds_but_not_after_the_last(every, rounds, tmp_path):
    kept = Checkpoints(tmp_path, every, 6)
    assert [round for round in range(7) if kept.is_due(round)] == rounds


def test_auto_takes_a_twentieth_of_the_time_at_most_and_keeps_a_second_of_work_or_more(tmp_path, monkeypatch):
    """By a clock that only this test moves: rounds of `work` s, checkpoints that take `cost`."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    long = ((1.25, 0.01, 1), (1.25, 0.06, 1), (1.25, 0.07, 2), (1.25, 0.6, 10), (1.25, 2.97, 48))
    short = ((0.3, 0.001, 4), (0.3, 0.07, 5))
    for work, cost, apart in long + short:
        kept, found = Checkpoints(tmp_path, "auto", 1000), []

        def written(cost: float = cost) -> dict:
            now[0] += cost
            return {}

        for round in range(1, 200):
            now[0] += work
            if kept.is_due(round):
                kept.keep(round, written, [{}], lambda versions, paths: None)
                found.append(round)
        assert found[0] == 1
        assert {b - a for a, b in pairwise(found)} == {apart}


def test_the_last_round_has_one_if_it_is_to_be_kept_which_stays_where_others_go(tmp_path):
    assert [Checkpoints(tmp_path, 0, 4, keep_last=keep).is_due(4) for keep in (False, True)] == [False, True]
    assert [Checkpoints(tmp_path, 2, 4, keep_last=True).is_due(round) for round in (1, 2, 3)] == [False, True, False]
    checkpoint.save(tmp_path, 3, CONTENT)
    checkpoint.remove_unless_last(tmp_path, 3)
    assert checkpoint.load(tmp_path) is not None
    checkpoint.remove_unless_last(tmp_path, 4)
    assert checkpoint.load(tmp_path) is None
