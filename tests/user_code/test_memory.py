"""Any number or text that a data set holds is known, and nothing that differs by chance."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedbench.user_code.memory import add_memory


@dataclass
class Record:
    x: np.ndarray
    y: int


class Held:
    def __init__(self, *held):
        self.held = held

    def __getitem__(self, index):
        return self.held[index]


def known(value) -> tuple[str, int]:
    """Its digest, and how many numbers it holds."""
    digest = sha256()
    numbers = add_memory(value, digest)
    return digest.hexdigest(), numbers


MAKERS = {
    "array": lambda k: np.array([1.0, k]),
    "text array": lambda k: np.array(["a", str(k)]),
    "objects": lambda k: np.array(["a", k], object),
    "tensor": lambda k: torch.tensor([1.0, k]),
    "view": lambda k: torch.tensor([[1.0, k], [3, 4]]).T[:, :1],
    "one of a tensor": lambda k: torch.tensor([[k, 2], [3, 4]])[:1, 0],
    "bfloat16": lambda k: torch.tensor([1.0, k], dtype=torch.bfloat16, requires_grad=True),
    "sparse": lambda k: torch.tensor([[0.0, k]]).to_sparse(),
    "numpy numbers": lambda k: [np.int64(0), np.int64(k)],
    "lists": lambda k: [[1, 2], [3, k]],
    "texts": lambda k: ["a", str(k)],
    "bytes": lambda k: [b"a", bytes([k])],
    "dict": lambda k: {"a": 1, "b": {"c": k}},
    "picture": lambda k: [Image.new("L", (2, 2), k)],
    "record": lambda k: [Record(np.zeros(2), k)],
    "table": lambda k: pd.DataFrame({"a": [1, k], "b": ["x", "y"]}),
    "subset": lambda k: torch.utils.data.Subset(Held(np.zeros(3)), [0, k]),
    "chain": lambda k: torch.utils.data.ConcatDataset([torch.utils.data.TensorDataset(torch.ones(2) * k)]),
    "attribute": lambda k: Held(1, Path("a"), None, k),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_one_other_value_is_another_digest(make):
    assert known(make(2)) == known(make(2))
    assert known(make(2))[0] != known(make(3))[0]


def test_shape_and_type_count():
    values = [np.zeros(4, np.float32), np.zeros((2, 2), np.float32), np.zeros(4, np.int32), [0, 0, 0, 0], [[0, 0]] * 2]
    assert len({known(value)[0] for value in values}) == len(values)


def test_numbers_are_counted_and_texts_are_not():
    held = Held(np.zeros((3, 4)), torch.zeros(5), [1, 2], ["a.png", "b.png"], [b"abc", b"de"], ("a.png", 1))
    assert known(held)[1] == 3 * 4 + 5 + 2 + 5
    assert known([object(), lambda: 0, Record])[1] == 0


def test_what_lies_in_itself_ends():
    held = Held(1)
    held.again = held
    assert known(held) == known(held)


def test_a_mapped_file_is_known_by_its_file(tmp_path):
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(4, 3))
    before = known(mapped)
    assert before == known(np.memmap(tmp_path / "rows", np.float32, "r", shape=(4, 3)))
    (tmp_path / "rows").write_bytes(bytes(60))
    assert known(np.memmap(tmp_path / "rows", np.float32, "r", shape=(4, 3)))[0] != before[0]
