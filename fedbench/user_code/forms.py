"""Tells what an object holds: a table, columns, arrays, or items by number."""

from collections.abc import Mapping
from typing import Any


def form_of(value: Any) -> str:
    """The form that samples are read from: table, columns, arrays, items, or the class of a data set; else empty."""
    if is_table(value):
        return "table"
    if are_columns(value):
        return "columns" if isinstance(value, Mapping) else "arrays"
    if isinstance(value, str | bytes | Mapping) or is_column(value) or hasattr(value, "forward"):
        return ""
    if isinstance(value, tuple | list) and not (value and isinstance(value[0], tuple | list | Mapping)):
        return ""
    if type(value) in (tuple, list):
        return "items"
    if not (hasattr(value, "__getitem__") and hasattr(value, "__len__")) or is_stream(value) or is_grouped(value):
        return ""
    while type(value).__name__ == "Subset" and hasattr(value, "dataset"):
        value = value.dataset
    return type(value).__name__


def holds_parts(value: Any) -> bool:
    """Whether it is a part, or holds parts by name or as arrays."""
    if isinstance(value, Mapping) and any(map(holds_parts, value.values())):
        return True
    return bool(form_of(value)) or is_foreign_table(value) or are_four_arrays(value)


def is_foreign_table(value: Any) -> bool:
    """Whether it is a table of another library that turns into one of pandas, such as pyarrow or Polars."""
    return hasattr(value, "to_pandas") and hasattr(value, "columns")


def is_column(value: Any) -> bool:
    """Whether it holds a value or array for every row: an array, a table, or a list of anything but items."""
    if isinstance(value, list):
        return bool(value) and not isinstance(value[0], tuple | Mapping)
    if hasattr(value, "to_numpy"):
        return True
    return hasattr(value, "dtype") and hasattr(value, "shape") and len(value.shape) > 0


def is_table(value: Any) -> bool:
    """Whether it is a DataFrame."""
    return hasattr(value, "to_numpy") and hasattr(value, "columns")


def holds_frame(value: Any) -> bool:
    """Whether it is a frame, a table of another library, or arrays of which the first is one."""
    first = value[0] if form_of(value) == "arrays" else value
    return is_table(first) or is_foreign_table(first)


def are_columns(value: Any) -> bool:
    """Whether it is (samples, targets), (samples, targets, users) or a dict of columns."""
    if are_tables_alike(value):
        return False
    if isinstance(value, Mapping):
        return bool(value) and all(map(is_column, value.values()))
    return isinstance(value, tuple | list) and len(value) in (2, 3) and all(map(is_column, value))


def are_tables_alike(value: Any) -> bool:
    """Whether it holds tables alone, which have a column in common."""
    tables = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(tables, tuple | list) or not tables or not all(map(is_table, tables)):
        return False
    return len(tables) == 1 or all({*table.columns} & {*tables[0].columns} for table in tables[1:])


def is_stream(value: Any) -> bool:
    """Whether it is an IterableDataset, whose items have no numbers."""
    return any(base.__name__ == "IterableDataset" for base in type(value).__mro__)


def is_grouped(value: Any) -> bool:
    """Whether it is what `groupby` of pandas returns."""
    return hasattr(value, "get_group")


def is_masked(value: Any) -> bool:
    """Whether NumPy's mask hides some of its numbers."""
    return hasattr(value, "filled") and hasattr(value, "mask") and bool(value.mask.any())


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array, or of a list by its first entries."""
    if hasattr(value, "shape"):
        return tuple(value.shape)
    return (len(value), *shape_of(value[0])) if isinstance(value, list | tuple) and value else ()


def are_four_arrays(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 4 and all(map(is_column, value))
