"""Nested values come back from safetensors as they were."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedbench.module.weights import Weights
from fedbench.runtime.states import trees


@pytest.fixture(params=["file", "bytes"])
def there_and_back(request, tmp_path: Path):
    def way(tree):
        if request.param == "bytes":
            return trees.decode(trees.encode(tree))
        trees.write(tree, tmp_path / "tree")
        return trees.read(tmp_path / "tree")

    return way


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5, dtype=torch.float64),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0, 2),
        torch.tensor([True, False, True]),
        torch.randn(3, 5).to(torch.bfloat16),
        torch.arange(12).view(3, 4).T[1:],
        torch.nn.Parameter(torch.ones(2, 2)),
    ],
    ids=["scalar", "empty", "no rows", "bool", "bfloat16", "not contiguous", "parameter"],
)
def test_tensors_of_every_kind_keep_their_bits(there_and_back, tensor):
    found = there_and_back({"before": torch.ones(3), "kept": {"a": [tensor]}, "after": torch.ones(7)})
    (kept,) = found["kept"]["a"]
    assert torch.equal(kept, tensor.detach())
    assert kept.dtype == tensor.dtype
    assert not kept.requires_grad
    assert torch.equal(found["after"], torch.ones(7))


def test_plain_values_keep_their_types(there_and_back):
    kept = {
        "none": None,
        "flag": True,
        "rate": 0.1,
        "pair": (1, "x"),
        3: {"deep": [[], {}]},
        (0, "y"): 1,
        "far": float("inf"),
    }
    assert there_and_back(kept) == kept
    assert [type(key) for key in there_and_back(kept)] == [str, str, str, str, int, tuple, str]


def test_weights_are_weights_again(there_and_back):
    weights = Weights(torch.randn(4), torch.zeros(0), torch.ones(2, dtype=torch.int64))
    found = there_and_back({"personal": weights})["personal"]
    assert all(torch.equal(a, b) for a, b in zip(vars(found).values(), vars(weights).values(), strict=True))


def test_a_tensor_that_is_there_twice_is_kept_once_and_overlapping_ones_apart(there_and_back):
    whole = torch.arange(1000.0)
    found = there_and_back({"a": whole, "b": [whole], "part": whole[3:7]})
    assert torch.equal(found["a"], whole)
    assert torch.equal(found["b"][0], whole)
    assert torch.equal(found["part"], whole[3:7])
    assert len(trees.encode({"a": whole, "b": whole})) < 6000


def test_tensors_whose_places_read_alike_are_kept_apart(there_and_back):
    found = there_and_back({"a/b": torch.ones(2), "a": {"b": torch.zeros(2)}, 1: torch.ones(3), "1": torch.zeros(3)})
    assert [float(v.sum()) for v in (found["a/b"], found["a"]["b"], found[1], found["1"])] == [2, 0, 3, 0]


def test_a_tensor_and_its_transpose_are_kept(there_and_back):
    whole = torch.arange(6.0).view(2, 3)
    found = there_and_back({"w": whole, "t": whole.t()})
    assert torch.equal(found["w"].t(), found["t"])


def test_tensors_of_somebody_else_are_no_tree(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "tree")
    with pytest.raises(OSError, match="holds tensors but no tree"):
        trees.read(tmp_path / "tree")


def test_what_is_read_is_the_readers_own(tmp_path):
    trees.write({"a": torch.ones(3)}, tmp_path / "tree")
    trees.read(tmp_path / "tree")["a"].zero_()
    assert trees.read(tmp_path / "tree")["a"].tolist() == [1, 1, 1]


def test_where_nothing_can_be_written_it_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        trees.write({"a": torch.ones(3)}, tmp_path / "missing" / "tree")
    assert not list(tmp_path.iterdir())


def test_bytes_are_those_of_the_tensors():
    weights = Weights(torch.zeros(4), torch.zeros(1), torch.zeros(1, dtype=torch.int64))
    assert trees.nbytes({"w": weights, "x": [torch.zeros(2)], "n": 3, "s": "text"}) == 16 + 4 + 8 + 8


def test_restored_tensors_lie_in_memory_as_new_ones(there_and_back):
    """The bits of a product depend on where its factors begin."""
    found = there_and_back({"one": torch.ones(3), "more": [torch.randn(5, 7) for _ in range(4)], "two": torch.ones(1)})
    assert all(tensor.data_ptr() % 64 == 0 for tensor in (found["one"], *found["more"], found["two"]))
    new = torch.zeros(8)
    assert trees.with_aligned_memory(new) is new
    assert torch.equal(trees.with_aligned_memory(new[1:]), new[1:])
    assert trees.with_aligned_memory(new[1:]).data_ptr() % 64 == 0


def test_a_changed_bit_is_noticed_in_a_file_that_is_kept(tmp_path):
    tree, path = (
        {"a": torch.ones(1000), "b": [torch.zeros(0), torch.ones(3, 3).to(torch.bfloat16)], "c": 1},
        tmp_path / "t",
    )
    trees.write(tree, path, checked=True)
    assert torch.equal(trees.read(path)["a"], tree["a"])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="has changed since it was written"):
        trees.read(path)


def test_vectors_go_to_the_device_and_counters_and_numbers_stay():
    def on(tree):
        return trees.move_vectors(tree, torch.device("meta"))

    vector, counters = torch.zeros(3), torch.zeros(2, dtype=torch.int64)
    found = on({"a": [vector, {"b": (vector, 1)}], "w": Weights(vector, vector, counters), "counters": counters})
    assert found["a"][0].is_meta
    assert found["a"][1]["b"][0].is_meta
    assert [value.is_meta for value in vars(found["w"]).values()] == [True, True, False]
    assert not found["counters"].is_meta
    assert not on({"step": torch.tensor(2.0)})["step"].is_meta, "torch.optim counts steps on the CPU"
    assert on(("text", None, 2)) == ("text", None, 2)
