"""A user's module sees batches in the structure of the data's items."""

import pytest
import torch
from torch import Tensor, nn

from fedbench.data.fields import Fields, Leaf
from fedbench.errors import ConfigError
from fedbench.module.inputs import attach, batch_for, call_form, inputs_of

X = torch.tensor([[1, 2, 0], [3, 4, 1]])
Y = torch.tensor([5, 6])
DICT = {"ids": Leaf((2,), "int64", 0), "mask": Leaf((), "bool", 2)}
PAIR = tuple(DICT.values())


class Named(nn.Module):
    def forward(self, ids: Tensor, mask: Tensor | None = None, labels: Tensor | None = None) -> list:
        return ["named", ids.tolist(), None if mask is None else mask.tolist()]


class Any(nn.Module):
    def forward(self, ids: Tensor, **more: Tensor) -> list:
        return ["any", ids.tolist(), more["mask"].tolist()]


class Whole(nn.Module):
    def forward(self, sample: dict) -> list:
        return ["whole", *(value.tolist() for value in (sample.values() if isinstance(sample, dict) else sample))]


class Two(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> list:
        return ["two", a.tolist(), b.tolist()]


@pytest.mark.parametrize(
    ("kind", "tree", "called"),
    [(Named, DICT, "named"), (Any, DICT, "any"), (Whole, DICT, "whole"), (Whole, PAIR, "whole"), (Two, PAIR, "two")],
)
def test_forward_gets_the_arrays_of_packed_samples(kind, tree, called):
    net = kind()
    attach(net, Fields(tree), torch.float32)
    assert net(X) == [called, [[1, 2], [3, 4]], [False, True]]


def test_a_sample_that_is_one_argument_of_forward_is_noted():
    for kind, tree, noted in ((Named, DICT, ""), (Whole, DICT, " (forward gets them as one dict)"), (Named, None, "")):
        attach(net := kind(), Fields(tree), torch.float32)
        assert inputs_of(net).note(kind.forward) == noted


def test_a_module_calls_itself_with_its_own_arrays():
    net = Named()
    attach(net, Fields(DICT, "labels"), torch.float32)
    assert net(X[:, :2]) == ["named", [[1, 2], [3, 4]], None]
    batch = batch_for(net, (X, Y))
    assert set(batch) == {"ids", "mask", "labels"}
    assert batch["labels"] is Y
    assert net(**batch) == ["named", [[1, 2], [3, 4]], [False, True]]


def test_a_sample_of_one_array_is_not_packed():
    net = Whole()
    attach(net, Fields(None, "label", "image"), torch.float32)
    assert batch_for(net, (X, Y)) == {"image": X, "label": Y}
    assert net(X.double()[None].unbind()) == ["whole", X.double().tolist()]
    assert inputs_of(Named()) is None
    assert batch_for(Named(), (X, Y)) == (X, Y)


@pytest.mark.parametrize(("kind", "parts"), [(Two, ("ids", "mask")), (Two, 3)])
def test_a_forward_that_cannot_take_them_is_refused(kind, parts):
    with pytest.raises(ConfigError, match=r"Two\.forward takes a, b, but a sample has"):
        call_form(kind.forward, parts)
