"""Reads samples of several arrays (dicts, tuples, nested), and calls a collate function on items of unequal sizes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedbench.data.description import Decision
from fedbench.data.fields import EXACT, Tree, row_type, tree_of, values_of
from fedbench.data.reading.images import GREY, Item, check_format, pixels
from fedbench.data.reading.samples import as_array, as_features, as_tokens
from fedbench.errors import ConfigError, RunError
from fedbench.import_string import import_string

PAD = "pad"
LARGEST = {"bool": 1, "uint8": 255}
"""The largest whole number that a type holds."""
PADDED_TARGET = -100
"""Fills up targets that are sequences; cross-entropy ignores it by default."""


@dataclass(frozen=True)
class StructureReader:
    """Packs samples of several arrays. The other fields are those of `SampleReader`."""

    tree: Tree
    remarks: tuple[str, ...] = ()
    transparent: list[str] = field(default_factory=list)
    kind: str = "fields"
    decisions: tuple[Decision, ...] = ()

    @classmethod
    def of(cls, first: Item) -> "StructureReader":
        """A reader for samples like this one. Raises ConfigError."""

        def shape_and_type(value: Any, name: str) -> tuple[tuple[int, ...], str]:
            array = field_array(value, f"{first.where}, {name}", [])
            return array.shape, type_of(array)

        return cls(tree_of(first.image, shape_and_type))

    def __call__(self, item: Item) -> np.ndarray:
        """The sample in one row, of the type that holds all of its arrays. Raises ConfigError."""
        kind, parts = row_type(self.tree), []
        try:
            values = list(values_of(item.image, self.tree))
        except KeyError as error:
            raise ConfigError(f"{item.where}: another structure than the first sample has ({error.args[0]})") from None
        for leaf, value in values:
            array = field_array(value, item.where, self.transparent)
            if array.shape != leaf.shape:
                raise ConfigError(
                    f"{item.where}: an array of shape {list(array.shape)}, where the first sample has "
                    f"{list(leaf.shape)}; --data.collate pad fills up with zeros"
                )
            if (type_of(array) == "float") > (leaf.dtype == "float"):
                raise ConfigError(f"{item.where}: an array of floats, where the first sample has whole numbers")
            if leaf.dtype == "float" and array.dtype == np.uint8:
                raise ConfigError(
                    f"{item.where}: an array of uint8, where the first sample has floats; bring one type and scale"
                )
            largest = LARGEST.get(leaf.dtype) if array.size and array.dtype != leaf.dtype else None
            if largest is not None and not 0 <= int(array.min()) <= int(array.max()) <= largest:
                raise ConfigError(
                    f"{item.where}: whole numbers that are not 0 to {largest}, where the first sample has {leaf.dtype}"
                )
            whole = leaf.dtype == "int64" and kind == np.float64
            if whole and max(abs(int(array.min())), abs(int(array.max()))) > EXACT:
                raise ConfigError(f"{item.where}: whole numbers beyond {EXACT:,} beside floats lose digits")
            parts.append(array.reshape(-1).astype(kind))
        return np.concatenate(parts)


def is_structure(sample: Any) -> bool:
    """Whether a sample consists of several arrays: a dict, or a tuple that holds arrays."""
    if isinstance(sample, tuple):
        return any(isinstance(value, Mapping | tuple) or is_array(value) for value in sample)
    return isinstance(sample, Mapping)


def is_array(value: Any) -> bool:
    """Whether a value is an array of numbers with at least one dimension, a picture, or a structure of these."""
    if isinstance(value, Mapping):
        return bool(value) and all(map(is_array, value.values()))
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, int | float) or is_array(item) for item in value)
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.dtype.kind in "biuf"
    return isinstance(value, Image.Image) or (isinstance(value, torch.Tensor) and value.ndim > 0)


def field_array(value: Any, where: str, transparent: list[str]) -> np.ndarray:
    """One array of a sample, bool, uint8, int64 or float32; pictures [C, H, W] in [0, 1]. Raises ConfigError."""
    if isinstance(value, Image.Image):
        check_format(value, where)
        return pixels(value, 1 if value.mode in GREY else 3, None, where, transparent).astype(np.float32) / 255
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, torch.Tensor) and not value.ndim):
        array = np.asarray(value)
    else:
        array = as_array(value, where)
    if array.dtype.kind == "f":
        return as_features(array, where)
    return array if array.dtype in (np.bool_, np.uint8) else as_tokens(array, where)


def type_of(array: np.ndarray) -> str:
    return "float" if array.dtype.kind == "f" else str(array.dtype)


def collated_parts(
    name: str, collate: str | Callable[[list[Any]], Any], parts: Sequence[Any], label: str | None
) -> list[list[Any]]:
    """The items of all parts after a collate function, which gets all items at once, as a DataLoader gives those of a
    batch.

    collate: pad, or a function or its package.module:name, which returns one batch, whose rows are the new items.
    label: the key of the target. Raises ConfigError.
    """
    items = [part[index] for part in parts for index in range(len(part))]
    where = f"data.collate = {collate if isinstance(collate, str) else getattr(collate, '__qualname__', collate)}"
    if collate == PAD:
        rows = pad_items(items, label)
    else:
        function: Any = import_string(collate, "data.collate") if isinstance(collate, str) else collate
        try:
            batch = function(items)
        except Exception as error:
            raise ConfigError(f"{where} fails on the items of data {name}: {RunError.of(error)}") from error
        rows = rows_of(batch, len(items), where)
    left = iter(rows)
    return [list(islice(left, len(part))) for part in parts]


def rows_of(batch: Any, count: int, where: str) -> list[Any]:
    """The items of a batch: its structure, with one row of every array. Raises ConfigError."""
    if isinstance(batch, Mapping):
        return row_dicts({key: rows_of(value, count, where) for key, value in batch.items()})
    if isinstance(batch, tuple) or (isinstance(batch, list) and batch and not isinstance(batch[0], int | float | str)):
        return list(zip(*(rows_of(value, count, where) for value in batch), strict=True))
    try:
        rows = list(batch)
    except TypeError:
        rows = []
    if len(rows) != count:
        raise ConfigError(
            f"{where}: it returned a {type(batch).__name__} of {len(rows)} rows for {count} items; a batch of arrays "
            "with a row for every item is expected"
        )
    return rows


def row_dicts(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """A dict for each row of these columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def pad_items(items: list[Any], label: str | None) -> list[Any]:
    """The items with every array filled up with zeros to the longest; sequences as targets with -100."""
    first = items[0]
    if isinstance(first, Mapping):
        return row_dicts({key: _pad([item[key] for item in items], PADDED_TARGET * (key == label)) for key in first})
    columns = (_pad([*values], PADDED_TARGET * (number == 1)) for number, values in enumerate(zip(*items, strict=True)))
    return list(zip(*columns, strict=True))


def _pad(values: list[Any], filler: int) -> list[Any]:
    first = values[0]
    if isinstance(first, Mapping):
        return row_dicts({key: _pad([value[key] for value in values], filler) for key in first})
    if isinstance(first, tuple) and is_structure(first):
        return list(zip(*(_pad(list(column), filler) for column in zip(*values, strict=True)), strict=True))
    if not is_array(first) or isinstance(first, Image.Image):
        return values
    arrays = [as_array(value, "data.collate = pad") for value in values]
    if len({array.ndim for array in arrays}) > 1:
        raise ConfigError(
            "data.collate = pad: arrays of different numbers of dimensions stand at the same place of items"
        )
    if filler and all(array.dtype.kind in "iu" for array in arrays):  # bytes have no -100
        arrays = [array.astype(np.int64) for array in arrays]
    longest = np.max([array.shape for array in arrays], axis=0)
    if filler and any(array.dtype.kind == "f" and array.shape != tuple(longest) for array in arrays):
        raise ConfigError(
            f"data.collate = pad: targets are sequences of floats of different lengths, and {filler} would be a target "
            "like others; bring a function that collates them"
        )
    return [
        np.pad(array, [*zip([0] * array.ndim, longest - array.shape, strict=True)], constant_values=filler)
        for array in arrays
    ]
