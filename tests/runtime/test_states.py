"""Private states: what a host saved counts from the moment its round is committed, and only whole."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.runtime.states import MemoryStates, SharedStates, States, shared_folder


def state(number: float) -> dict:
    return {"params": torch.full((5,), number), "optimizer/fit": {"step": 3, "rows": [torch.ones(2)]}, "note": "x"}


@pytest.fixture
def shared(tmp_path: Path) -> SharedStates:
    return SharedStates(tmp_path)


@pytest.mark.parametrize("kind", ["memory", "shared"])
def test_what_was_saved_is_loaded(kind, tmp_path):
    states: States = MemoryStates() if kind == "memory" else SharedStates(tmp_path)
    assert states.load(4, 9) == {}
    states.save(4, 1, state(1))
    found = states.load(4, 1)
    assert torch.equal(found["params"], state(1)["params"])
    assert found["note"] == "x"
    assert found["optimizer/fit"]["step"] == 3
    assert list(states.all(1)) == [4]


@pytest.mark.parametrize("kind", ["memory", "shared"])
def test_what_a_client_does_to_its_state_stays_its_own_until_saved(kind, tmp_path):
    states: States = MemoryStates() if kind == "memory" else SharedStates(tmp_path)
    states.save(0, 1, state(1))
    taken = states.load(0, 1)
    taken["params"].zero_()
    taken["more"] = 1
    assert torch.equal(states.load(0, 1)["params"], state(1)["params"])
    assert "more" not in states.load(0, 1)


def test_a_later_round_is_not_read(shared):
    for round in (1, 2, 3):
        shared.save(0, round, state(round))
    assert shared.load(0, 3)["params"][0] == 3
    assert shared.load(0, 2)["params"][0] == 2
    assert shared.all(2)[0]["params"][0] == 2


def test_a_round_done_again_replaces_what_it_left(shared):
    shared.save(0, 1, state(1))
    shared.save(0, 2, state(99))  # a host that died later in round 2
    shared.save(0, 2, state(2))
    assert shared.load(0, 1)["params"][0] == 1
    assert shared.load(0, 2)["params"][0] == 2


def test_a_half_written_state_is_not_read(shared, tmp_path):
    shared.save(0, 1, state(1))
    whole = (tmp_path / "0" / "1").read_bytes()
    (tmp_path / "0" / "2.4711.part").write_bytes(whole[: len(whole) // 2])
    assert shared.load(0, 2)["params"][0] == 1
    assert list(shared.all(2)) == [0]


def test_clients_are_not_taken_for_each_other(shared):
    for client in (1, 11, 111):
        shared.save(client, 1, state(client))
    assert [shared.load(client, 1)["params"][0].item() for client in (1, 11, 111)] == [1, 11, 111]
    assert list(shared.all(1)) == [1, 11, 111]


def test_old_rounds_are_dropped(shared, tmp_path):
    for round in range(1, 30):
        shared.save(0, round, state(round))
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == ["28", "29"]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5, dtype=torch.float64),
        torch.zeros(0, dtype=torch.int64),
        torch.tensor([True, False, True]),
        torch.randn(3, 5).to(torch.bfloat16),
        torch.arange(12).view(3, 4).T[1:],
        torch.nn.Parameter(torch.ones(2, 2)),
    ],
    ids=["scalar", "empty", "bool", "bfloat16", "not contiguous", "parameter"],
)
def test_tensors_of_every_kind_keep_their_bits(shared, tensor):
    shared.save(0, 1, {"before": torch.ones(3), "kept": {"a": [tensor]}, "after": torch.ones(7)})
    found = shared.load(0, 1)
    (kept,) = found["kept"]["a"]
    assert torch.equal(kept, tensor.detach())
    assert kept.dtype == tensor.dtype
    assert not kept.requires_grad
    assert torch.equal(found["after"], torch.ones(7))


def test_an_empty_tensor_at_the_end_of_an_odd_file(shared):
    shared.save(0, 1, {"odd": torch.tensor([True, False, True]), "empty": torch.zeros(0, 2, dtype=torch.float64)})
    assert shared.load(0, 1)["empty"].shape == (0, 2)


def test_plain_values_keep_their_types(shared):
    kept = {"none": None, "flag": True, "rate": 0.1, "pair": (1, "x"), 3: {"deep": [set("ab")]}}
    shared.save(0, 1, kept)
    assert shared.load(0, 1) == kept


@pytest.mark.parametrize("wrong", [np.ones(2), Path("x"), print], ids=["array", "object", "function"])
def test_what_is_no_plain_data_is_refused_when_it_is_saved(shared, wrong):
    shared.save(0, 1, state(1))
    with pytest.raises(TypeError, match="keep tensors, numbers, strings, lists and dicts"):
        shared.save(0, 2, {"held": [wrong]})
    assert shared.load(0, 2)["params"][0] == 1


def test_a_file_that_names_code_is_not_run(shared, tmp_path):
    content = pickle.dumps({"held": os.getpid})
    shared.save(0, 1, state(1))
    (tmp_path / "0" / "2").write_bytes(len(content).to_bytes(8, sys.byteorder) + content)
    with pytest.raises(pickle.UnpicklingError, match="getpid"):
        shared.load(0, 2)


def test_an_empty_state_takes_no_file(shared, tmp_path):
    shared.save(0, 1, {})
    assert not list(tmp_path.iterdir())


def test_folders_of_the_dead_are_removed():
    mine = shared_folder("test-run", 0)
    dead = mine.parent / "test-run-0-4194305"  # above the largest process number
    dead.mkdir(exist_ok=True)
    (mine / "0.1").touch()
    try:
        assert shared_folder("test-run", 1) != mine
        assert not dead.exists()
        assert mine.exists()
        assert mine.name.endswith(f"-{os.getpid()}")
        assert not list(shared_folder("test-run", 0).iterdir())
    finally:
        for folder in (mine, mine.parent / f"test-run-1-{os.getpid()}"):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
