"""A state is written once into the shards of checkpoints, and what no checkpoint needs any more goes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime.states.shards import Shards
from fedbench.runtime.states.store import Versions


class Writing:
    """Hosts that note what they wrote."""

    def __init__(self) -> None:
        self.written: list[dict[str, dict[int, int]]] = []
        self.full = False

    def __call__(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        for path, own in zip(paths, versions, strict=True):
            if own:
                path.write_text("\n".join(map(str, own)))
                if self.full:
                    raise OSError(28, "No space left on device")
        self.written.append({path.name: dict(own) for path, own in zip(paths, versions, strict=True) if own})


@pytest.fixture
def hosts() -> Writing:
    return Writing()


def kept(shards: Shards, round: int, versions: list[Versions], hosts: Writing) -> list[str]:
    """A checkpoint that counts; the names of its shards, all of which are there and none else."""
    names = shards.write(round, versions, hosts)
    shards.drop_old()
    assert sorted(names) == sorted(path.name for path in shards.folder.iterdir())
    return names


def test_what_has_not_changed_since_the_last_checkpoint_is_not_written_again(tmp_path, hosts):
    shards = Shards(tmp_path)
    kept(shards, 1, [{0: 1, 2: 1}, {1: 1}], hosts)
    names = kept(shards, 3, [{0: 1, 2: 3}, {1: 1, 3: 2}], hosts)
    assert hosts.written[1] == {"000003-0.safetensors": {2: 3}, "000003-1.safetensors": {3: 2}}
    assert len(names) == 4
    assert shards.paths_of(names) == [tmp_path / "states" / name for name in names]


def test_who_has_moved_with_an_unchanged_state_is_not_written_again(tmp_path, hosts):
    shards = Shards(tmp_path)
    first = kept(shards, 1, [{0: 1}, {1: 1}], hosts)
    assert kept(shards, 2, [{0: 1, 1: 1}, {}], hosts) == first
    assert hosts.written[1] == {}


def test_a_shard_of_which_nothing_is_needed_goes(tmp_path, hosts):
    shards = Shards(tmp_path)
    kept(shards, 1, [{0: 1, 1: 1}], hosts)
    assert kept(shards, 2, [{0: 2, 1: 2}], hosts) == ["000002-0.safetensors"]


def test_shards_never_hold_more_than_twice_the_states_and_what_has_changed(tmp_path, hosts):
    shards, versions = Shards(tmp_path), dict.fromkeys(range(10), 1)
    for round in range(1, 60):
        versions = versions | dict.fromkeys(range(round % 3, 10, 4), round)
        kept(shards, round, [versions], hosts)
        there = [int(line) for path in shards.folder.iterdir() for line in path.read_text().split()]
        assert len(there) <= 2 * 10 + 3
        assert set(there) == set(range(10))
    assert sum(len(own) for turn in hosts.written for own in turn.values()) < 0.6 * 59 * 10


def test_a_full_disk_leaves_what_the_checkpoint_before_names(tmp_path, hosts):
    shards = Shards(tmp_path)
    before = kept(shards, 1, [{0: 1}, {1: 1}], hosts)
    hosts.full = True
    with pytest.raises(OSError, match="No space"):
        shards.write(2, [{0: 2}, {1: 2}], hosts)
    assert sorted(path.name for path in shards.folder.iterdir()) == sorted(before)
    hosts.full = False
    assert len(kept(shards, 3, [{0: 2}, {1: 1}], hosts)) == 2


def test_nothing_goes_before_the_new_checkpoint_counts(tmp_path, hosts):
    shards = Shards(tmp_path)
    before = kept(shards, 1, [{0: 1}], hosts)
    shards.write(2, [{0: 2}], hosts)
    assert shards.paths_of(before)


def test_a_new_attempt_writes_all_and_clears_what_was_left(tmp_path, hosts):
    kept(Shards(tmp_path), 1, [{0: 1, 1: 1}], hosts)
    Shards(tmp_path).write(2, [{0: 2, 1: 1}], hosts)  # its driver died
    assert kept(Shards(tmp_path), 3, [{0: 3, 1: 1}], hosts) == ["000003-0.safetensors"]


def test_a_shard_that_is_gone_is_named(tmp_path, hosts):
    shards = Shards(tmp_path / "run" / "checkpoint")
    names = kept(shards, 1, [{0: 1}, {1: 1}], hosts)
    (shards.folder / names[1]).unlink()
    with pytest.raises(
        ConfigError, match=f"{names[1]}: missing, and the checkpoint needs it; .* delete .*/run to run it"
    ):
        shards.paths_of(names)
