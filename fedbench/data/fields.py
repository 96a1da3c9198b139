"""The structure of batches where items are more than (sample, target): dicts, and samples of several arrays.

A sample of several arrays is packed into one row of numbers, so that everything between the file and the model handles
one tensor. A model sees the arrays again, under their own names and of their own types.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

EXACT = 2**53
"""Float64 represents all integers up to this one."""


@dataclass(frozen=True)
class Leaf:
    """One array of a sample: its shape, its type (bool, uint8, int64 or float) and its first column in the row."""

    shape: tuple[int, ...]
    dtype: str
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)


Tree = Leaf | dict[str, "Tree"] | tuple["Tree", ...]


@dataclass(frozen=True)
class Fields:
    """The structure of batches.

    sample: the arrays of a packed sample; None if a sample is one array, which is not packed. key, label: the keys of
    sample and target in batches that are dicts, as the items are; None: a batch is (sample, target). A packed sample
    that is a dict has no key: its own keys stand beside the target's.
    """

    sample: Tree | None
    label: str | None = None
    key: str | None = None

    @property
    def shapes(self) -> Any:
        """The shapes of the arrays, in the structure of the sample."""
        return _map_leaves(lambda leaf: leaf.shape, self.sample)

    @property
    def width(self) -> int:
        """The number of columns of a packed sample."""
        return max((leaf.stop for _, leaf in named_leaves(self.sample)), default=0)

    @property
    def description(self) -> str:
        """The structure of a batch, for errors."""
        if self.label is None:
            return "(sample, target), whose sample is a tuple or dict as in the data"
        keys = [self.key] if self.key else list(self.sample) if isinstance(self.sample, dict) else []
        return f"that are dicts with the keys {', '.join(map(str, (*keys, self.label)))}, as the items are"

    def __str__(self) -> str:
        part = "part " if isinstance(self.sample, tuple) else ""
        return ", ".join(f"{part}{name} {list(leaf.shape)}" for name, leaf in named_leaves(self.sample))

    def unpack(self, x: "Tensor", floats: "Any") -> Any:
        """The arrays `[b, ...]` of packed samples `[b, D]`, in the structure of the sample. floats: type of floats."""
        import torch

        types = {"bool": torch.bool, "uint8": torch.uint8, "int64": torch.int64, "float": floats}

        def columns_of(leaf: Leaf) -> "Tensor":
            columns = x[:, leaf.start : leaf.stop].to(types[leaf.dtype])
            return columns if len(leaf.shape) == 1 else columns.reshape(len(x), *leaf.shape)

        return _map_leaves(columns_of, self.sample)

    def batch(self, x: Any, y: "Tensor") -> Any:
        """A batch in the structure of the items."""
        if self.label is None:
            return x, y
        return {**(x if self.key is None else {self.key: x}), self.label: y}

    def as_json(self) -> dict[str, Any]:
        return {"sample": _to_json(self.sample), "label": self.label, "key": self.key}

    @classmethod
    def from_json(cls, json: Mapping[str, Any] | None) -> "Fields | None":
        return json and cls(_from_json(json["sample"]), json["label"], json["key"])  # type: ignore[return-value]


def tree_of(value: Any, leaf: Callable[[Any, str], tuple[tuple[int, ...], str]]) -> Tree:
    """The structure of a sample. leaf: shape and type of an array, given its name for errors."""
    width = 0

    def build(value: Any, name: str) -> Tree:
        nonlocal width
        if isinstance(value, Mapping):
            return {str(key): build(subtree, _name_below(name, key)) for key, subtree in value.items()}
        if isinstance(value, tuple):
            return tuple(build(subtree, _name_below(name, number)) for number, subtree in enumerate(value))
        field = Leaf(*leaf(value, name), start=width)
        width = field.stop
        return field

    return build(value, "")


def named_leaves(tree: Tree | None, name: str = "") -> Iterator[tuple[str, Leaf]]:
    """The arrays by dotted name, in the order of their columns."""
    if isinstance(tree, Leaf):
        yield name, tree
    elif tree is not None:
        for key, subtree in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from named_leaves(subtree, _name_below(name, key))


def values_of(value: Any, tree: Tree) -> Iterator[tuple[Leaf, Any]]:
    """The arrays of a sample beside their leaves. Raises KeyError if its structure is another one."""
    if isinstance(tree, Leaf):
        yield tree, value
        return
    if isinstance(tree, dict) != isinstance(value, Mapping) or isinstance(tree, tuple) != isinstance(value, tuple):
        raise KeyError(type(value).__name__)
    if len(value) != len(tree):
        raise KeyError(f"{len(value)} parts")
    for key, subtree in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from values_of(value[key], subtree)


def row_type(tree: Tree) -> np.dtype[Any]:
    """The type of a packed row that holds every array exactly."""
    floats = {leaf.dtype == "float" for _, leaf in named_leaves(tree)}
    return np.dtype("float64" if len(floats) > 1 else "float32" if floats == {True} else "int64")


def _map_leaves(change: Callable[[Leaf], Any], tree: Tree | None) -> Any:
    if isinstance(tree, dict):
        return {key: _map_leaves(change, subtree) for key, subtree in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_map_leaves(change, subtree) for subtree in tree)
    return tree and change(tree)


def _to_json(tree: Tree | None) -> Any:
    if isinstance(tree, dict):
        return {"dict": {key: _to_json(subtree) for key, subtree in tree.items()}}
    if isinstance(tree, tuple):
        return {"tuple": [_to_json(subtree) for subtree in tree]}
    return tree and {"shape": list(tree.shape), "dtype": tree.dtype, "start": tree.start}


def _from_json(tree: Any) -> Tree | None:
    if tree is None:
        return None
    if "dict" in tree:
        return {key: _from_json(subtree) for key, subtree in tree["dict"].items()}  # type: ignore[misc]
    if "tuple" in tree:
        return tuple(map(_from_json, tree["tuple"]))  # type: ignore[arg-type]
    return Leaf(tuple(tree["shape"]), tree["dtype"], tree["start"])


def _name_below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
