"""The interface and the table of partition schemes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.config.section import make_section
from fedbench.data.partitions import schemes
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.newcomers import check_newcomers
from fedbench.data.partitions.pool import MERGING, SamplePool
from fedbench.data.partitions.rows import Partition
from fedbench.errors import ConfigError, nearest
from fedbench.plugins import PluginTable, modules

DEALING_KEYS = {"test_share", "total", "order_by"}
COMMON_KEYS = {"test", "test_by", *DEALING_KEYS}
"""Keys that all schemes read; those of dealing only where samples are dealt."""
FEDCAC_SIZES = {"train_size": 500, "test_size": 100}
"""Samples of a client in the protocol of FedCAC (ICCV 2023, section 4.1)."""
LAST_FIFTH = 0.2
"""The default of `partition.test_share` where the data are split anew; parts that are merged keep that of papers."""


@dataclass(frozen=True)
class Scheme:
    """A way to distribute samples to clients.

    deal: takes the samples, the keys `partition.*` and a random stream, and returns the training and test samples of
    all clients, whose two parts have the same classes. whole: instead of `deal`, for partitions that are known as they
    are: takes the samples, the configuration and a seed, and returns the partition with its validation and public
    samples. reads: the keys it reads, of those that not all schemes read. Options: the keys, including any of its own.
    classless: it works without classes. test: the meaning of `partition.test = auto`. drawn: it supports
    `partition.test = drawn`. sizes: defaults of `train_size` and `test_size`. image: a number for every row, the same
    for rows with the same image; by default the row. count: the default number of clients; none: that of
    `partition.clients`. own_parts: whether the parts of the data can be the parts of clients; if not,
    `partition.test = auto` merges the parts. remarks: lines about the clients. headline: the keys that a report names
    with the scheme. splits_clients: whether merged parts are split client by client, if no groups stay together, and
    not before samples are dealt. size: how many samples of a part, `train` or `test`, the keys give each client; None:
    an even share.
    """

    deal: Callable[[SamplePool, Any, np.random.Generator], Deal] | None = None
    reads: tuple[str, ...] = ()
    Options: type[PartitionConfig] = PartitionConfig
    classless: bool = False
    test: str = "part"
    drawn: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    image: Callable[[SamplePool], np.ndarray] = lambda stock: np.arange(len(stock.labels))
    count: Callable[[SamplePool, Any], int] | None = None
    own_parts: Callable[[SamplePool], bool] = lambda source: not source.one_part
    remarks: Callable[[SamplePool, Any], Iterable[str]] = lambda stock, options: ()
    headline: tuple[str, ...] = ()
    splits_clients: bool = False
    size: Callable[[Any, str], float | None] = lambda options, part: getattr(options, f"{part}_size")
    whole: Callable[[SamplePool, Config, int], Partition] | None = None


def _check(name: str, thing: Any) -> None:
    if not isinstance(thing, Scheme):
        raise ConfigError(f"scheme '{name}' is no fedbench.data.partitions.scheme.Scheme")
    if (thing.deal is None) == (thing.whole is None):
        raise ConfigError(f"scheme '{name}' must have either `deal` or `whole`")


SCHEMES = PluginTable(
    "scheme",
    group="fedbench.schemes",
    built_in=modules(schemes.__name__, schemes.__path__),
    extract=attrgetter("SCHEME"),
    form="package.module:SCHEME",
    check=_check,
)


def names() -> list[str]:
    """The legal values of `partition.name`."""
    return SCHEMES.names()


def load(name: str) -> Scheme:
    """The scheme of this name, or by package.module:SCHEME. Raises ConfigError."""
    scheme: Scheme = SCHEMES.load(name)
    return scheme


def readers(key: str) -> list[str]:
    """The schemes that read a key not read by all, with their default size."""
    kinds = dict(SCHEMES.loadable())
    sizes = {name: f" {kind.sizes[key]}" for name, kind in kinds.items() if key in kind.sizes}
    return [f"{name}{sizes.get(name, '')}" for name, kind in kinds.items() if key in kind.reads]


def check_keys(config: PartitionConfig) -> PartitionConfig:
    """The keys as the scheme's Options. Raises ConfigError for unknown ones."""
    kind = load(config.name).Options
    for key in config.options:
        if key not in kind.model_fields:
            raise ConfigError(
                f"unknown key partition.{key}: partition {config.name} takes no such option; "
                f"{nearest(key, set(kind.model_fields) - {'name'})}"
            )
    return make_section(kind, config.model_dump(), "partition.")


def resolve_scheme_options(config: PartitionConfig, one_part: bool, merged: str = "pooled") -> PartitionConfig:
    """The keys with defaults of scheme and data filled in. Raises ConfigError.

    one_part: the data have no separate parts. merged: the meaning of `partition.test = auto` where parts are merged.
    """
    options, scheme = check_keys(config), load(config.name)
    filled: dict[str, Any] = {key: getattr(config, key) or size for key, size in scheme.sizes.items()}
    test: str = config.test
    if test == "auto":
        test = "pooled" if one_part else scheme.test
        if test == "pooled" and (one_part or config.test_by):
            test = "stratified" if config.test_by else merged
        filled["test"] = test
    if config.test == "drawn" and not scheme.drawn:
        raise ConfigError(f"partition.test = drawn: {config.name} does not support it; use part or pooled")
    if config.test == "drawn":
        filled["test_size"] = config.test_size or 100
    if test in ("stratified", "last") and "test_share" not in config.model_fields_set:
        filled["test_share"] = LAST_FIFTH
    if scheme.whole is None:
        check_columns(config, test)
    return PartitionConfig(**{**options.model_dump(), **filled})


def check_columns(config: PartitionConfig, test: str) -> None:
    """Raises ConfigError for columns by which these test samples cannot be chosen."""
    if config.test_by and test not in ("stratified", "part"):
        raise ConfigError(
            f"partition.test_by = {config.test_by}: partition.test = {test} does not keep groups whole; take stratified"
        )
    if config.order_by and test != "last":
        raise ConfigError(
            f"partition.order_by = {config.order_by}: it says which samples are the last; set partition.test last"
        )


def with_client_count(config: PartitionConfig, source: SamplePool) -> PartitionConfig:
    """The resolved keys with the number of clients in the data, if the scheme uses it and none is set."""
    scheme = load(config.name)
    merged = "stratified" if source.one_part and not source.known else "pooled"
    options = resolve_scheme_options(config, not scheme.own_parts(source), merged)
    count = scheme.count if clients_by_data(config) else None
    counted = options.model_copy(update={"clients": count(source, check_keys(options))}) if count else options
    check_newcomers(counted)
    return counted


def client_size(options: PartitionConfig, part: str) -> float | None:
    """The number of samples that resolved keys give a client in a part, `train` or `test`; None: an even share."""
    return load(options.name).size(check_keys(options), part)


def clients_by_data(config: PartitionConfig) -> bool:
    """Whether the data determine the number of clients."""
    return load(config.name).count is not None and "clients" not in config.model_fields_set


def ignored_keys(options: PartitionConfig) -> list[str]:
    """The keys that are set but that the scheme does not read, given the origin of its test images."""
    scheme, defaults = load(options.name), PartitionConfig()
    reads = COMMON_KEYS.union(scheme.reads)
    if scheme.whole is not None:
        reads -= DEALING_KEYS
    reads -= {"test_share"} if options.test not in MERGING else set()
    reads -= {"test_size"} if scheme.drawn and options.test != "drawn" else set()
    return [key for key in sorted(keys_of_schemes() - reads) if getattr(options, key) != getattr(defaults, key)]


@cache
def keys_of_schemes() -> frozenset[str]:
    """The keys that any scheme reads."""
    return frozenset(COMMON_KEYS.union(*(scheme.reads for _, scheme in SCHEMES.loadable())))


def unused_key_warnings(options: PartitionConfig) -> list[str]:
    """One sentence for each key that was set without effect."""
    depending_on_test = {"test_share", "test_size"} if load(options.name).whole is None else set()
    return [
        f"partition.{key} = {getattr(options, key)} has no effect: partition {options.name} does not use it"
        + (f" with test = {options.test}" if key in depending_on_test else "")
        for key in ignored_keys(options)
    ]
