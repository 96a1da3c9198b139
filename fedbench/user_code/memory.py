"""A digest of the data that a data set holds in memory, which changes with any number or text."""

from collections.abc import Sequence
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


def parts_held(value: Any) -> list[Any] | None:
    """The parts of a container, record or data set; None for anything else."""
    if isinstance(value, np.ndarray | list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.items())
    if hasattr(value, "to_numpy"):
        return [value.to_numpy()]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in fields(value)]
    return list(vars(value).items()) if hasattr(value, "__getitem__") and hasattr(value, "__dict__") else None
