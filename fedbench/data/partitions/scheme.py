"""The interface and the table of partition schemes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedbench.config import PartitionConfig
from fedbench.config.words import explain
from fedbench.data.partitions import schemes
from fedbench.data.partitions.holdings import Deal, Stock
from fedbench.errors import ConfigError, nearest

FILE = "file"
"""The partition in a file, which no scheme draws."""
FILE_KEYS = {"path", "test"}
COMMON = {"test", "test_share", "total"}
"""Keys that all schemes read, and a file does not."""


@dataclass(frozen=True)
class Scheme:
    """A way to distribute samples to clients.

    deal: takes the samples, the keys `partition.*` and a random stream, and returns the training and test samples of
    all clients, whose two parts have the same classes. reads: the keys it reads, of those that not all schemes read.
    Options: the keys, including any of its own. classless: it works without classes. test: the meaning of
    `partition.test = auto`. drawn: it supports `partition.test = drawn`. sizes: defaults of `train_size` and
    `test_size`. image: a number for every row, the same for rows with the same image; by default the row. count: the
    default number of clients; none: that of `partition.clients`. remarks: lines about the clients.
    """

    deal: Callable[[Stock, Any, np.random.Generator], Deal]
    reads: tuple[str, ...] = ()
    Options: type[PartitionConfig] = PartitionConfig
    classless: bool = False
    test: str = "part"
    drawn: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    image: Callable[[Stock], np.ndarray] = lambda stock: np.arange(len(stock.labels))
    count: Callable[[Stock, Any], int] | None = None
    remarks: Callable[[Stock, Any], Iterable[str]] = lambda stock, options: ()


@cache
def names() -> list[str]:
    """The legal values of `partition.name`."""
    return [*sorted(found.name.replace("_", "-") for found in iter_modules(schemes.__path__)), FILE]


def load(name: str) -> Scheme:
    """The scheme of this name. Raises ConfigError."""
    if name not in names() or name == FILE:
        raise ConfigError(f"partition.name = {name!r}: unknown scheme; {nearest(name, names())}")
    scheme: Scheme = import_module(f"{schemes.__name__}.{name.replace('-', '_')}").SCHEME
    return scheme


def checked(asked: PartitionConfig) -> PartitionConfig:
    """The keys as the scheme's Options. Raises ConfigError for unknown ones."""
    kind = PartitionConfig if asked.name == FILE else load(asked.name).Options
    for key in asked.options:
        if key not in kind.model_fields:
            raise ConfigError(
                f"unknown key partition.{key}: partition {asked.name} takes no such option; "
                f"{nearest(key, set(kind.model_fields) - {'name'})}"
            )
    try:
        return kind(**asked.model_dump())
    except ValidationError as error:
        raise ConfigError(explain(error, kind, prefix="partition.")) from None


def resolved(asked: PartitionConfig, one_part: bool) -> PartitionConfig:
    """The keys with defaults of scheme and data filled in. one_part: the data have no separate parts."""
    options, filled = checked(asked), dict[str, Any]()
    if asked.name != FILE:
        scheme = load(asked.name)
        filled |= {key: getattr(asked, key) or size for key, size in scheme.sizes.items()}
        if asked.test == "auto":
            filled["test"] = "pooled" if one_part else scheme.test
        if asked.test == "drawn" and not scheme.drawn:
            raise ConfigError(f"partition.test = drawn: {asked.name} does not support it; use part or pooled")
    elif asked.test == "auto":
        filled["test"] = "pooled" if one_part else "part"
    if asked.test == "drawn":
        filled["test_size"] = asked.test_size or 100
    return PartitionConfig(**{**options.model_dump(), **filled})


def with_client_count(asked: PartitionConfig, source: Stock) -> PartitionConfig:
    """The resolved keys with the number of clients in the data, if the scheme uses it and none is set."""
    options = resolved(asked, source.one_part)
    if not clients_by_data(asked):
        return options
    return options.model_copy(update={"clients": load(asked.name).count(source, checked(options))})


def clients_by_data(asked: PartitionConfig) -> bool:
    """Whether the data determine the number of clients."""
    return asked.name != FILE and load(asked.name).count is not None and "clients" not in asked.model_fields_set


def ignored(options: PartitionConfig) -> list[str]:
    """The keys that are set but that the scheme does not read, given the origin of its test images."""
    reads, defaults = set(FILE_KEYS), PartitionConfig()
    if options.name != FILE:
        scheme = load(options.name)
        reads = COMMON.union(scheme.reads)
        reads -= {"test_share"} if options.test != "pooled" else set()
        reads -= {"test_size"} if scheme.drawn and options.test != "drawn" else set()
    return [key for key in sorted(known() - reads) if getattr(options, key) != getattr(defaults, key)]


@cache
def known() -> frozenset[str]:
    """The keys that any scheme reads."""
    return frozenset(COMMON.union(FILE_KEYS, *(load(name).reads for name in names() if name != FILE)))


def unused(options: PartitionConfig) -> list[str]:
    """One sentence for each key that was set without effect."""
    return [
        f"partition.{key} = {getattr(options, key)} has no effect: partition {options.name} does not use it"
        + (f" with test = {options.test}" if key in ("test_share", "test_size") and options.name != FILE else "")
        for key in ignored(options)
    ]
