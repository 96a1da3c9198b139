"""Reads arrays out of pickles without running anything that is in them.

A pickle names functions to call. The few that make up a NumPy array are replaced by `PickledValue`, which only keeps
what it is given; any other name is refused. Nothing of NumPy sees the content before its types and sizes have been
checked.
"""

import pickle
import re
from collections.abc import Callable
from typing import IO, Any

import numpy as np

PLAIN = re.compile(r"[biuf][1248]|S\d+|U\d+")
OBJECTS = re.compile(r"O\d*")
CORES = ("numpy.core.multiarray", "numpy._core.multiarray")


class PickledValue:
    """An array, its type, or a number, as it is pickled. given: the arguments; state: what was set on it."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class ArrayUnpickler(pickle.Unpickler):
    """Knows nothing but containers, numbers, text and `PickledValue`. Raises UnpicklingError for other names."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")) or (
            module in CORES and name in ("_reconstruct", "scalar")
        ):
            return PickledValue
        raise pickle.UnpicklingError(
            f"it calls {module}.{name}, which may be code; only arrays and containers are read"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


def load_arrays(file: IO[bytes]) -> Any:
    """The content of a pickle of containers, numbers, text and arrays. Raises UnpicklingError for anything else."""
    try:
        return restore(ArrayUnpickler(file).load())
    except pickle.UnpicklingError:
        raise
    except Exception as error:
        raise pickle.UnpicklingError(f"damaged: {error}") from error


def restore(value: Any) -> Any:
    """The value with arrays and numbers for what stands for them."""
    if isinstance(value, PickledValue):
        return stored_array(value)
    if isinstance(value, dict):
        return {key: restore(own) for key, own in value.items()}
    return type(value)(map(restore, value)) if type(value) in (list, tuple) else value


def stored_array(stored: PickledValue) -> Any:
    """The array or number. Raises UnpicklingError."""
    if len(stored.given) == 2:  # a number: its type and bytes
        kind, raw = stored.given
        return np.frombuffer(raw, dtype_of(kind), count=1)[0]
    _, shape, kind, by_column, content = stored.state
    if OBJECTS.fullmatch(kind.given[0]):
        found = np.empty(len(content), object)
        found[:] = [restore(own) for own in content]
    else:
        found = np.frombuffer(content, dtype_of(kind))
    return found.reshape(shape, order="F" if by_column else "C")


def dtype_of(stored: PickledValue) -> np.dtype:
    """A plain type from its name and byte order. Raises UnpicklingError."""
    name, order = stored.given[0], stored.state[1] if stored.state else "="
    if not PLAIN.fullmatch(name) or order not in ("<", ">", "|", "="):
        raise pickle.UnpicklingError(f"an array of type {name}; numbers and text are read")
    return np.dtype(order + name)
