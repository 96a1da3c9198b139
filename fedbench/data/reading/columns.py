"""Columns, an array each of samples, targets and perhaps domains, become items."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pandas.api.types import is_numeric_dtype
from torch.utils.data import DataLoader

from fedbench.data.reading.structure import row_dicts
from fedbench.errors import ConfigError
from fedbench.user_code.forms import is_table

SAMPLES = "samples"


def items_of_columns(data: Any, where: str) -> Any:
    """Converts columns (arrays of samples, targets and perhaps domains, or a dict) to items; else no change."""
    if isinstance(data, DataLoader):
        raise ConfigError(f"{where}s: a DataLoader; pass its data set, loader.dataset")
    if isinstance(data, dict) and data and all(isinstance(name, str) for name in data):
        return row_dicts(dict(zip(data, arrays_of(data, where), strict=True)))
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        return data
    first, *others = data
    array = isinstance(first, np.ndarray | torch.Tensor) and first.ndim
    if not array and not hasattr(first, "to_numpy"):
        return data
    if not all(isinstance(own, np.ndarray | torch.Tensor | list) or hasattr(own, "to_numpy") for own in others):
        return data
    return list(zip(*arrays_of(named_columns(data), where), strict=True))


def named_columns(columns: Sequence[Any]) -> dict[str, Any]:
    """Columns by what they hold, in the order in which one passes them; those that have no meaning by their place."""
    names = (SAMPLES, "targets", "domains")
    return {names[i] if i < len(names) else f"column {i + 1}": column for i, column in enumerate(columns)}


def arrays_of(columns: Mapping[str, Any], where: str) -> list[Any]:
    """The columns as arrays. Raises ConfigError if they have different numbers of rows."""
    arrays = [
        frame_numbers(column, where) if name == SAMPLES and is_table(column) else dense_rows(column, where)
        for name, column in columns.items()
    ]
    if len({len(column) for column in arrays}) > 1:
        sizes = " and ".join(f"{len(column)} rows of {name}" for name, column in zip(columns, arrays, strict=True))
        raise ConfigError(f"{where}s: {sizes}; all must have the same number")
    return arrays


def frame_numbers(frame: Any, where: str) -> Any:
    """The cells of a frame of samples, whose whole numbers are numbers and no tokens."""
    rows = dense_rows(frame, where)
    return rows.astype(np.float64) if rows.dtype.kind in "iu" else rows


def dense_rows(column: Any, where: str) -> Any:
    """A column as an array if it is one of pandas or a matrix. Raises ConfigError if it is sparse."""
    if hasattr(column, "toarray") or getattr(column, "layout", torch.strided) != torch.strided:
        called = "to_dense" if isinstance(column, torch.Tensor) else "toarray"
        raise ConfigError(f"{where}s: a sparse {type(column).__name__}; pass it dense, X.{called}()")
    if isinstance(column, np.matrix):
        return np.asarray(column)
    if not hasattr(column, "to_numpy"):
        return column
    rows, types = column.to_numpy(), column.dtypes if hasattr(column, "columns") else [column.dtype]
    if rows.dtype.hasobject and all(map(is_numeric_dtype, types)):  # of numbers or truth values, some of them missing
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return rows
