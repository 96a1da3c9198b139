"""Private states: what a store keeps counts from the moment its round is over, and a lost one is an error."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from fedbench.errors import ConfigError
from fedbench.runtime.states import trees
from fedbench.runtime.states.store import ClientStore, DiskStore, MemoryStore, StateLostError, contents_of, open_store


def state(number: float) -> dict:
    return {
        "params": torch.full((5,), float(number)),
        "optimizers": {"fit": {"step": 3, "rows": [torch.ones(2)]}},
        "warning": "x",
    }


def first(found: dict) -> float:
    return float(found["params"][0])


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path: Path) -> ClientStore:
    return open_store(tmp_path / "own" if request.param == "disk" else None)


def test_what_was_saved_is_loaded(store):
    assert store.save(4, 1, state(1)) == 28
    found = store.load(4, 1)
    assert torch.equal(found["params"], state(1)["params"])
    assert found["optimizers"]["fit"]["step"] == 3
    assert found["warning"] == "x"


def test_a_state_may_be_fetched_ahead(store):
    store.save(4, 1, state(1))
    for client, round in ((4, 1), (4, 2), (5, 0)):
        store.fetch(client, round)
    assert first(store.load(4, 1)) == 1


def test_a_client_that_never_trained_has_none(store):
    assert store.load(4, 0) == {}


@pytest.mark.parametrize(("saved", "asked"), [((), 2), ((1,), 2), ((1, 2, 3), 1)])
def test_a_missing_state_of_a_client_that_has_trained_is_an_error(store, saved, asked):
    for round in saved:
        store.save(4, round, state(round))
    with pytest.raises(StateLostError, match=f"private state of client 4, saved in round {asked}, is lost"):
        store.load(4, asked)


def test_what_a_client_does_to_its_state_stays_its_own_until_saved(store):
    store.save(0, 1, state(1))
    taken = store.load(0, 1)
    taken["params"].zero_()
    taken["more"] = 1
    assert torch.equal(store.load(0, 1)["params"], state(1)["params"])
    assert "more" not in store.load(0, 1)


def test_a_round_that_is_done_again_starts_from_the_state_before_it(store):
    store.save(0, 1, state(1))
    store.save(0, 2, state(99))  # in a round that never ended
    assert first(store.load(0, 1)) == 1
    with pytest.raises(StateLostError):
        store.load(0, 2)
    store.save(0, 2, state(2))
    assert first(store.load(0, 2)) == 2


def test_a_client_that_begins_anew_has_no_state_of_a_round_that_never_ended(store):
    store.save(0, 1, state(1))
    assert store.load(0, 0) == {}
    with pytest.raises(StateLostError):
        store.load(0, 1)


def test_two_versions_at_most_are_kept(tmp_path):
    store = DiskStore(tmp_path)
    for round in range(1, 30):
        store.save(0, round, state(round))
        assert len(list(tmp_path.iterdir())) <= 2
    store.load(0, 29)
    assert [path.name for path in tmp_path.iterdir()] == ["0-29.safetensors"]
    store.drop(0)
    assert not list(tmp_path.iterdir())


def test_files_outlive_their_process(tmp_path):
    DiskStore(tmp_path).save(3, 7, state(7))
    assert first(DiskStore(tmp_path).load(3, 7)) == 7


def test_a_damaged_file_is_a_lost_state(tmp_path):
    DiskStore(tmp_path).save(3, 7, state(7))
    path = tmp_path / "3-7.safetensors"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(StateLostError):
        DiskStore(tmp_path).load(3, 7)


@pytest.mark.parametrize("kinds", [(MemoryStore, DiskStore), (DiskStore, MemoryStore), (DiskStore, DiskStore)])
def test_who_moves_moves_with_its_state(kinds, tmp_path):
    here, there = (kind(*[tmp_path / str(n)][: kind is DiskStore]) for n, kind in enumerate(kinds))
    for client in (1, 11, 111):
        here.save(client, 5, state(client))
    there.save(1, 3, state(-1))  # it was at home there before
    versions = {1: 5, 111: 5}
    there.take(versions, here.give(versions))
    assert [first(there.load(client, 5)) for client in versions] == [1, 111]
    assert [first(here.load(client, 5)) for client in (1, 11, 111)] == [1, 11, 111]  # until the driver says so
    here.drop(1)
    with pytest.raises(StateLostError):
        here.give({1: 5})


def test_every_store_writes_its_own_shard_and_takes_its_clients_of_all(store, tmp_path):
    others = MemoryStore()
    store.save(1, 4, state(1))
    store.save(2, 6, state(2))
    others.save(3, 6, state(3))
    shards = [tmp_path / "a", tmp_path / "b"]
    store.snapshot({1: 4, 2: 6}, shards[0])
    others.snapshot({3: 6}, shards[1])
    anew = DiskStore(tmp_path / "anew")
    anew.restore({2: 6, 3: 6}, shards)
    assert [first(anew.load(client, 6)) for client in (2, 3)] == [2, 3]
    with pytest.raises(StateLostError):
        anew.load(1, 4)


def test_of_shards_only_the_state_of_the_round_that_is_asked_for_is_taken(store, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for shard, round in ((old, 4), (new, 6)):
        store.save(1, round, state(round))
        store.snapshot({1: round}, shard)
    for order in ([old, new], [new, old]):
        anew = MemoryStore()
        anew.restore({1: 6}, order)
        assert first(anew.load(1, 6)) == 6
        anew.take({1: 4}, contents_of({1: 4}, order))
        assert first(anew.load(1, 4)) == 4


def test_a_state_that_no_shard_has_and_a_damaged_shard_are_named(store, tmp_path):
    shard = tmp_path / "run" / "checkpoint" / "states" / "000004-0.safetensors"
    shard.parent.mkdir(parents=True)
    store.save(1, 4, state(1))
    store.snapshot({1: 4}, shard)
    for take in (store.restore, contents_of):
        with pytest.raises(ConfigError, match="the state of client 2 is missing"):
            take({1: 4, 2: 4}, [shard])
        with pytest.raises(ConfigError, match="the state of client 1 is missing"):
            take({1: 5}, [shard])
    whole = shard.read_bytes()
    foreign = save({"w": torch.zeros(3)})
    for content in (whole[: len(whole) // 2], b"", b"nothing that anybody wrote", foreign):
        shard.write_bytes(content)
        for take in (store.restore, contents_of):
            with pytest.raises(
                ConfigError, match=f"{shard.name}: damaged; .*delete {tmp_path / 'run'} to run it again"
            ):
                take({1: 4}, [shard])


def test_a_shard_lacks_no_state(store, tmp_path):
    store.save(1, 4, state(1))
    with pytest.raises(StateLostError):
        store.snapshot({1: 4, 2: 4}, tmp_path / "shard")


@pytest.mark.parametrize("wrong", [{1, 2}, np.ones(2), Path("x"), print], ids=["set", "array", "object", "function"])
def test_what_is_no_plain_data_is_refused_when_it_is_saved_first(wrong, store):
    with pytest.raises(TypeError, match="keep tensors, weights, numbers, strings, lists and dicts"):
        store.save(0, 1, {"held": [wrong]})


@pytest.mark.parametrize("wrong", [np.ones(2), Path("x"), print], ids=["array", "object", "function"])
def test_what_is_no_plain_data_is_refused_when_it_is_saved(wrong, tmp_path):
    store = DiskStore(tmp_path)
    store.save(0, 1, state(1))
    with pytest.raises(TypeError, match="keep tensors, weights, numbers, strings, lists and dicts"):
        store.save(0, 2, {"held": [wrong]})
    assert first(store.load(0, 1)) == 1


def test_states_are_files_that_other_programs_read(tmp_path):
    from safetensors.torch import load_file

    DiskStore(tmp_path).save(3, 7, state(7))
    assert torch.equal(load_file(tmp_path / "3-7.safetensors")["/params"], torch.full((5,), 7.0))
    assert trees.read(tmp_path / "3-7.safetensors")["warning"] == "x"
