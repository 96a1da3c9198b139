"""The values of items: targets, users, and names of classes and domains."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from fedbench.data.reading.images import Item
from fedbench.data.reading.keys import NamedParts
from fedbench.errors import ConfigError
from fedbench.tasks.class_numbers import in_order
from fedbench.user_code.forms import is_masked


def refuse_masked(where: str, what: str, value: Any) -> None:
    """Raises ConfigError for a target or user of which NumPy's mask hides numbers."""
    if is_masked(value):
        raise ConfigError(f"{where}: the {what} has masked numbers; fill them in, x.filled(...), or leave it out")


def names_of_column(data: Any, label: str | None) -> Any:
    """The class names that a data set of Hugging Face declares for its column of labels, if any."""
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return None
    key = NamedParts([*features], "the set", "column").find("label", label)
    return getattr(features.get(key), "names", None)


def names_and_count(value: Any, where: str) -> tuple[tuple[str, ...], int | None]:
    """A data set's names of its numbers, and their count. Raises ConfigError."""
    if value is None:
        return (), None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return (), int(value)
    if isinstance(value, Mapping):
        numbers = sorted(value, key=lambda name: value[name])
        if [value[name] for name in numbers] != [*range(len(numbers))]:
            raise ConfigError(f"{where} maps names to other numbers than 0 to {len(numbers) - 1}")
        value = numbers
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{where} is a {type(value).__name__}; a list of names, a dict or their number is expected")
    names = tuple(str(unwrap_value(name)) for name in value)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{where} has {twice!r} twice")
    return names, len(names) or None


def unwrap_value(value: Any) -> Any:
    """The number in a tensor or array of one element; an array for larger tensors and lists."""
    if isinstance(value, torch.Tensor):
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
    if isinstance(value, list | tuple):
        value = np.asarray(value)
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value


def unwrap_target(value: Any) -> Any:
    """`unwrap_value` of a target, except that one float in a row stays a row, as a `DataLoader` would leave it."""
    plain = unwrap_value(value)
    return np.asarray([plain]) if isinstance(plain, float) and np.ndim(value) == 1 else plain


VOID_TEXTS = ("", "nan", "NaN", "<NA>", "NaT")
"""What a missing value becomes where an array turns values into texts."""


def refuse_void_text(where: str, what: str, value: Any) -> None:
    """Raises ConfigError for a text that an array has made of a missing value. what: the value is."""
    if isinstance(value, str) and value.strip() in VOID_TEXTS:
        raise ConfigError(f"{where}: the {what} is {value!r}, a missing value as text; leave such samples out")


def checked_target(item: Item, first: Any) -> Any:
    """A target with the type and shape of the first one. Raises ConfigError."""
    if item.label is None:
        raise ConfigError(f"{item.where}: the label is missing; leave such samples out")
    refuse_void_text(item.where, "label", item.label)
    values = np.asarray(item.label)
    if values.dtype.kind not in "biufU":
        raise ConfigError(
            f"{item.where}: the label is a {type(item.label).__name__}; whole numbers, floats, booleans or text are "
            "understood"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ConfigError(f"{item.where}: the target is not finite; leave such samples out")
    if values.dtype == np.uint64:
        if int(values.max()) > np.iinfo(np.int64).max:
            raise ConfigError(f"{item.where}: label {values.max()} is too large for a class")
        values = values.astype(np.int64)
    if first is None:
        return values
    if values.shape != first.shape:
        raise ConfigError(f"{item.where}: a target of shape {list(values.shape)}, the first is {list(first.shape)}")
    kinds = [{"u": "i"}.get(array.dtype.kind, array.dtype.kind) for array in (values, first)]
    if kinds[0] != kinds[1]:
        raise ConfigError(f"{item.where}: label {item.label!r} is of another type than the first, {first.tolist()!r}")
    return values


def domain_numbers(names: tuple[str, ...], values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Domain numbers [rows] and their names: those of the parts, or the values that occur in ascending order.

    Texts are in the order of numbers if all are whole numbers, as the users of a table are.
    """
    occurring = in_order(values.tolist()) if values.dtype.kind == "U" else np.unique(values).tolist()
    domains = names or occurring
    places = {domain: number for number, domain in enumerate(domains)}
    return np.array([places[value] for value in values.tolist()], np.int64), tuple(map(str, domains))
