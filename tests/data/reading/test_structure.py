"""Samples of several arrays, and items of unequal sizes."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from fedbench.data.reading.images import Item
from fedbench.data.reading.structure import StructureReader, collated_parts, is_array, is_structure, pad_items
from fedbench.errors import ConfigError


def item(sample, where="here") -> Item:
    return Item(sample, 0, where, None)


@pytest.mark.parametrize(
    ("sample", "several"),
    [
        ({"a": np.ones(2)}, True),
        ((torch.ones(2), 3), True),
        (([1, 2], [3]), True),
        ((1, 2, 3), False),
        ([[1, 2], [3, 4]], False),
        (np.ones(2), False),
    ],
)
def test_dicts_and_tuples_of_arrays_are_structures(sample, several):
    assert is_structure(sample) == several


@pytest.mark.parametrize("value", ["text", ["a"], [], 3, None, np.float32(1), np.array(["a"]), {"a": "b"}])
def test_what_is_no_array(value):
    assert not is_array(value)


def test_a_sample_becomes_a_row():
    picture = Image.fromarray(np.array([[0, 255]], np.uint8))
    read = StructureReader.of(item({"ids": [1, 2], "long": 5, "picture": picture, "on": torch.tensor([True])}))
    assert [leaf.dtype for leaf in read.tree.values()] == ["int64", "int64", "float", "bool"]
    row = read(item({"ids": [3, 4], "long": 6, "picture": picture, "on": torch.tensor([False])}))
    assert row.dtype == np.float64
    assert row.tolist() == [3, 4, 6, 0, 1, 0]


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ({"ids": [1, 2, 3], "w": [0.5]}, "an array of shape [3], where the first sample has [2]; --data.collate pad"),
        ({"ids": [1, 2]}, "another structure than the first sample has (1 parts)"),
        ({"ids": [1.5, 2], "w": [0.5]}, "an array of floats, where the first sample has whole numbers"),
        ({"ids": [1, 2**53 + 2], "w": [0.5]}, "whole numbers beyond 9,007,199,254,740,992 beside floats lose digits"),
        ({"ids": [1, 2], "w": [np.nan]}, "not finite"),
        ({"ids": [1, 2], "w": np.array([200], np.uint8)}, "an array of uint8, where the first sample has floats"),
        ({"ids": "ab", "w": [0.5]}, "the sample is a str"),
    ],
)
def test_a_sample_unlike_the_first_is_refused(sample, says):
    read = StructureReader.of(item({"ids": [1, 2], "w": [0.5]}))
    with pytest.raises(ConfigError, match="row 3: ") as caught:
        read(item(sample, "row 3"))
    assert says in str(caught.value)


@pytest.mark.parametrize(("first", "later"), [(np.array([7], np.uint8), [300]), (np.array([True]), [2])])
def test_whole_numbers_that_the_type_of_the_first_sample_does_not_hold_are_refused(first, later):
    read = StructureReader.of(item({"a": first, "w": [0.5]}))
    assert read(item({"a": [1], "w": [0.5]})).tolist() == [1, 0.5]
    with pytest.raises(ConfigError, match=f"whole numbers that are not 0 to .* has {first.dtype}"):
        read(item({"a": later, "w": [0.5]}))


def test_padding_fills_up_inputs_with_zeros_and_targets_with_the_ignored_class():
    found = pad_items([([1, 2], [3]), ([4], [5, 6])], None)
    assert [[array.tolist() for array in own] for own in found] == [[[1, 2], [3, -100]], [[4, 0], [5, 6]]]
    found = pad_items([{"x": [[1.0]], "text": "a", "y": 0}, {"x": [[1.0], [2.0]], "text": "b", "y": 1}], "y")
    assert found[0]["x"].tolist() == [[1.0], [0.0]]
    assert [own["text"] for own in found] == ["a", "b"]
    assert [own["y"] for own in found] == [0, 1]
    (first, _), _ = pad_items([(([1], 1), 0), (([1, 2], 2), 0)], None)[0], None
    assert first[0].tolist() == [1, 0]
    with pytest.raises(ConfigError, match="sequences of floats of different lengths, and -100 would be a target"):
        pad_items([{"y": np.ones(2)}, {"y": np.ones(3)}], "y")
    assert pad_items([{"y": np.ones(2)}, {"y": np.zeros(2)}], "y")[0]["y"].tolist() == [1, 1]
    short = [np.array([3], np.uint8), np.array([5, 6], np.uint8)]
    assert [own["y"].tolist() for own in pad_items([{"y": y} for y in short], "y")] == [[3, -100], [5, 6]]


def test_a_collate_function_gets_all_items_once(monkeypatch):
    calls = []

    def collate(items):
        calls.append(len(items))
        return {"x": torch.tensor([[i, 0] for i, _ in items]), "y": torch.tensor([y for _, y in items])}

    module = ModuleType("mine")
    module.collate, module.broken, module.short = collate, lambda items: 1 / 0, lambda items: torch.zeros(2)
    monkeypatch.setitem(sys.modules, "mine", module)
    parts = [[(1, 0), (2, 1)], [(3, 0)]]
    train, test = collated_parts("mine:make", "mine:collate", parts, None)
    assert calls == [3]
    assert [row["x"].tolist() for row in train] == [[1, 0], [2, 0]]
    assert test[0]["y"] == 0
    with pytest.raises(ConfigError, match=r"mine:broken fails on the items of data mine:make: ZeroDivisionError"):
        collated_parts("mine:make", "mine:broken", parts, None)
    with pytest.raises(ConfigError, match=r"it returned a Tensor of 2 rows for 3 items"):
        collated_parts("mine:make", "mine:short", parts, None)
