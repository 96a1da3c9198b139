"""The structure of samples of several arrays, and their packed rows."""

import json

import numpy as np
import pytest
import torch

from fedbench.data.fields import Fields, Leaf, named_leaves, row_type, tree_of, values_of

TREE = {"ids": Leaf((3,), "int64", 0), "more": ({"w": Leaf((2, 1), "float", 3)}, Leaf((), "bool", 5))}
SAMPLE = {"ids": np.array([7, 8, 9]), "more": ({"w": np.array([[0.5], [1.5]])}, np.array(True))}


def test_the_structure_of_a_sample():
    kinds = {"i": "int64", "f": "float", "b": "bool"}
    assert tree_of(SAMPLE, lambda value, name: (value.shape, kinds[value.dtype.kind])) == TREE
    assert [name for name, _ in named_leaves(TREE)] == ["ids", "more.0.w", "more.1"]
    assert Fields(TREE).width == 6
    assert str(Fields(TREE)) == "ids [3], more.0.w [2, 1], more.1 []"
    assert str(Fields((TREE["ids"], TREE["ids"]))) == "part 0 [3], part 1 [3]"
    assert Fields(TREE).shapes == {"ids": (3,), "more": ({"w": (2, 1)}, ())}


def test_a_packed_row_is_unpacked_as_it_was():
    x = torch.tensor([[7, 8, 9, 0.5, 1.5, 1], [1, 2, 3, 4.0, 5.0, 0]], dtype=torch.float64)
    found = Fields(TREE).unpack(x, torch.float32)
    assert found["ids"].dtype == torch.int64
    assert found["ids"].tolist() == [[7, 8, 9], [1, 2, 3]]
    weights, flag = found["more"]
    assert weights["w"].dtype == torch.float32
    assert weights["w"].tolist() == [[[0.5], [1.5]], [[4.0], [5.0]]]
    assert flag.dtype == torch.bool
    assert flag.tolist() == [True, False]


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [(["int64", "bool"], np.int64), (["float", "float"], np.float32), (["float", "uint8"], np.float64)],
)
def test_a_row_holds_every_array_exactly(kinds, wanted):
    assert row_type(tuple(Leaf((1,), kind, place) for place, kind in enumerate(kinds))) == wanted


@pytest.mark.parametrize("other", [SAMPLE["ids"], {"ids": 1}, {"ids": 1, "less": 2}, {**SAMPLE, "more": (1, 2, 3)}])
def test_another_structure_is_refused(other):
    assert [leaf for leaf, _ in values_of(SAMPLE, TREE)] == [leaf for _, leaf in named_leaves(TREE)]
    with pytest.raises(KeyError):
        list(values_of(other, TREE))


@pytest.mark.parametrize("fields", [Fields(TREE), Fields(TREE, "y"), Fields(None, "y", "x")])
def test_json_holds_all(fields):
    assert Fields.from_json(json.loads(json.dumps(fields.as_json()))) == fields
    assert Fields.from_json(None) is None


def test_batches_are_pairs_or_dicts():
    assert Fields(TREE).batch("x", "y") == ("x", "y")
    assert Fields(None, "label", "image").batch("x", "y") == {"image": "x", "label": "y"}
    assert Fields(TREE, "label").batch({"ids": 1}, "y") == {"ids": 1, "label": "y"}
