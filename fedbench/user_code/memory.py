"""A digest of the data that a data set holds in memory, which changes with any number or text."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

TEXTS = (str, Path, NoneType)
SCALARS = (*TEXTS, bytes, bytearray, int, float, complex, np.generic)


class PlainValue(NamedTuple):
    """A value without parts: its identity in words and as bytes, and the count of its numbers."""

    description: Any
    whole: Any = b""
    numbers: int = 0


def add_memory(value: Any, digest: Any, inside: tuple[int, ...] = ()) -> int:
    """Adds the numbers and texts in a data set to a digest, in any nesting.

    inside: the identities of the enclosing objects. Returns the count of numbers, including bytes.
    """
    if plain := plain_value(value):
        digest.update(repr(plain.description).encode())
        digest.update(plain.whole)
        return plain.numbers
    parts = None if id(value) in inside else parts_held(value)
    if parts is None:
        return 0
    digest.update(f"{type(value).__name__} {len(parts)}".encode())
    return sum(add_memory(part, digest, (*inside, id(value))) for part in parts)


def plain_value(value: Any) -> PlainValue | None:
    """A number, text, array or flat list of these; None for anything else."""
    if isinstance(value, torch.Tensor):
        return PlainValue((tuple(value.shape), value.dtype), bytes_of(value), value.numel())
    if isinstance(value, np.memmap) and value.filename:  # reading all of it may take long
        status = Path(str(value.filename)).stat()
        return PlainValue(
            (status.st_size, status.st_mtime_ns, value.offset, value.shape, value.dtype), numbers=value.size
        )
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        whole = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return PlainValue((value.shape, value.dtype.str), whole, value.size)
    if isinstance(value, Image.Image):
        content = value.tobytes()
        return PlainValue((value.size, value.mode), content, len(content))
    if isinstance(value, SCALARS):
        return PlainValue(value, numbers=count_numbers([value]))
    if isinstance(value, list | tuple) and all(issubclass(kind, SCALARS) for kind in set(map(type, value))):
        return PlainValue([*value], numbers=count_numbers(value))
    return None


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor's numbers, of any type and on any device."""
    whole = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    dense = whole.cpu().resolve_conj().resolve_neg().contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # flatten keeps the stride of a single number, which view refuses
    return flat.view(torch.uint8).numpy()


def count_numbers(values: Sequence[Any]) -> int:
    """The count of numbers or bytes; 0 if there are texts among them."""
    kinds = set(map(type, values))
    if kinds <= {bytes, bytearray}:
        return sum(map(len, values))
    return 0 if any(issubclass(kind, TEXTS) for kind in kinds) else len(values)


def columns_held(table: Any) -> Iterator[tuple[str, Any]]:
    """The columns of a table by name, with those that stand in its index; a column without a name for itself."""
    if not hasattr(table, "columns"):
        yield "", table
        return
    index: Any = getattr(table, "index", None)
    for level, name in enumerate(getattr(index, "names", ())):
        if name is not None:
            yield f"index {name}", index.get_level_values(level)
    for name in table.columns:
        yield str(name), table[name]


def column_parts(column: Any) -> Iterator[Any]:
    """What tells a column from others: its type, with its categories, and its values; of objects their types too."""
    kind = getattr(column, "dtype", getattr(column, "type", None))
    yield str(kind)
    if (categories := getattr(kind, "categories", None)) is not None and hasattr(categories, "to_numpy"):
        yield from column_parts(categories)
    values = column.to_numpy()
    if not values.dtype.hasobject:
        yield values
        return
    cells = values.reshape(-1).tolist()
    yield [type(cell).__name__ for cell in cells]
    yield [*map(_known_cell, cells)]


def _known_cell(value: Any) -> Any:
    """A cell by its content: lists and arrays as they are, others as text."""
    is_array = hasattr(value, "ndim") and value.ndim > 0
    return value if is_array or isinstance(value, list | tuple | dict) else str(value)


def parts_held(value: Any) -> list[Any] | None:
    """The parts of a container, record or data set; None for anything else."""
    if isinstance(value, np.ndarray | list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.items())
    if hasattr(value, "to_numpy"):
        return [part for name, column in columns_held(value) for part in (name, *column_parts(column))]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in fields(value)]
    return list(vars(value).items()) if hasattr(value, "__getitem__") and hasattr(value, "__dict__") else None
