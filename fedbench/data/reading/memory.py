"""What a data set holds in memory, as a digest that changes with any number or text of it."""

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
    """Of a value without parts: what tells it from others, in words and as bytes, and how many numbers it is."""

    described: Any
    whole: Any = b""
    numbers: int = 0


def add_memory(value: Any, digest: Any, inside: tuple[int, ...] = ()) -> int:
    """Feed the numbers and texts that a data set holds to a digest, however it is put together of others.

    inside: the identities of what it lies in. Returns how many numbers these are, bytes among them.
    """
    if own := plain_value(value):
        digest.update(repr(own.described).encode())
        digest.update(own.whole)
        return own.numbers
    parts = None if id(value) in inside else parts_held(value)
    if parts is None:
        return 0
    digest.update(f"{type(value).__name__} {len(parts)}".encode())
    return sum(add_memory(part, digest, (*inside, id(value))) for part in parts)


def plain_value(value: Any) -> PlainValue | None:
    """A number, a text, an array or a flat list of them; None of anything else."""
    if isinstance(value, torch.Tensor):
        return PlainValue((tuple(value.shape), value.dtype), bytes_of(value), value.numel())
    if isinstance(value, np.memmap) and value.filename:  # reading all of it may take long
        found = Path(str(value.filename)).stat()
        return PlainValue(
            (found.st_size, found.st_mtime_ns, value.offset, value.shape, value.dtype), numbers=value.size
        )
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        whole = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return PlainValue((value.shape, value.dtype.str), whole, value.size)
    if isinstance(value, Image.Image):
        content = value.tobytes()
        return PlainValue((value.size, value.mode), content, len(content))
    if isinstance(value, SCALARS):
        return PlainValue(value, numbers=numbers_in([value]))
    if isinstance(value, list | tuple) and all(issubclass(kind, SCALARS) for kind in kinds_of(value)):
        return PlainValue([*value], numbers=numbers_in(value))
    return None


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """Those of its numbers, whatever their type and wherever they lie."""
    whole = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    return whole.cpu().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8).numpy()


def kinds_of(values: Sequence[Any]) -> set[type]:
    return set(map(type, values))


def numbers_in(values: Sequence[Any]) -> int:
    """How many numbers, or bytes, these are; 0 where there are texts among them."""
    kinds = kinds_of(values)
    if kinds <= {bytes, bytearray}:
        return sum(map(len, values))
    return 0 if any(issubclass(kind, TEXTS) for kind in kinds) else len(values)


def parts_held(value: Any) -> list[Any] | None:
    """What a container, a record or a data set is made of; None of anything else."""
    if isinstance(value, np.ndarray | list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.items())
    if hasattr(value, "to_numpy"):
        return [value.to_numpy()]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, own.name, None) for own in fields(value)]
    return list(vars(value).items()) if hasattr(value, "__getitem__") and hasattr(value, "__dict__") else None
