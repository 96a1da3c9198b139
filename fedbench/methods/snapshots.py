"""Snapshots of trees of tensors and values, by which a write to one is found."""

from collections.abc import Iterable
from functools import cache
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from fedbench.methods.client import PrivateState
from fedbench.methods.messages import Message
from fedbench.module.weights import Weights

Leaf = tuple[tuple[Any, ...], Any, int]
"""A leaf of a tree: its place, its value, and the number of writes to it if it is a tensor."""


def first_change(before: list[Leaf], after: list[Leaf]) -> str:
    """The first place where two snapshots of a tree differ, or an empty string."""
    for one, other in zip_longest(before, after):
        if one is None or other is None or not _is_same_leaf(one, other):
            return ".".join(map(str, (one or other)[0]))
    return ""


def first_rewrite(before: list[Leaf], copies: list[Tensor]) -> str:
    """The first place of a tensor whose bits differ from its copy's, or an empty string."""
    tensors = [(place, value) for place, value, _ in before if isinstance(value, Tensor)]
    places = (place for (place, value), copy in zip(tensors, copies, strict=False) if not copy.equal(bits_of(value)))
    return ".".join(map(str, next(places, ())))


def bits_of(tensor: Tensor) -> Tensor:
    """A copy as bytes, in which NaN equals itself."""
    return tensor.detach().clone().reshape(-1).view(torch.uint8)


def leaves_of(tree: Any) -> list[Leaf]:
    """A snapshot of a tree of dicts, sequences, weights, messages and private states."""
    leaves: list[Leaf] = []
    _gather(tree, (), leaves)
    return leaves


def _gather(tree: Any, place: tuple[Any, ...], leaves: list[Leaf]) -> None:
    items: Iterable[tuple[Any, Any]]
    if isinstance(tree, (Weights, PrivateState)):  # a union would be rebuilt at every call
        items = vars(tree).items()
    elif isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, Message):
        items = tree.tensors.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        leaves.append((place, tree, _writes(tree)))
        return
    for key, item in items:
        kind: Any = type(item)
        if _has_parts(kind):
            _gather(item, (*place, key), leaves)
        else:
            leaves.append(((*place, key), item, _writes(item)))


@cache
def _has_parts(kind: type) -> bool:
    return issubclass(kind, (Weights, PrivateState, dict, Message, list, tuple))


def _writes(value: Any) -> int:
    """The number of writes to a tensor, as far as PyTorch counts them."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _is_same_leaf(one: Leaf, other: Leaf) -> bool:
    (place, value, version), (now, later, writes) = one, other
    same = value is later or (not isinstance(value, Tensor) and type(value) is type(later) and value == later)
    return version == writes and same and place == now
