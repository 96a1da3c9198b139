"""Partitions: pure functions of labels, domains, options and a seed.

Every scheme assigns training and test images so that a client's two parts have the same classes. Then a share of each
client's training images is held out for validation. All row numbers index `Dataset.samples`.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.assignment import (
    Assignment,
    Deal,
    random_stream,
    repeated_image_warnings,
    shared_image_warnings,
)
from fedbench.data.partitions.label_noise import check_noise_clients
from fedbench.data.partitions.newcomers import with_newcomers
from fedbench.data.partitions.pool import MERGING, SamplePool, groups_of
from fedbench.data.partitions.public import draw_public
from fedbench.data.partitions.rows import ClientRows, Clients, Partition, client_rows
from fedbench.data.partitions.scheme import (
    SCHEMES,
    check_keys,
    load,
    names,
    resolve_scheme_options,
    unused_key_warnings,
    with_client_count,
)
from fedbench.data.partitions.sides import side_lines
from fedbench.data.partitions.validation import hold_out_validation, own_validation, shared_lines
from fedbench.errors import ConfigError, first_line

__all__ = ["ClientRows", "Clients", "Partition", "names", "partition", "resolve_scheme_options", "resolved_options"]


def partition(dataset: Dataset, config: Config, seed: int) -> Partition:
    """The partition of a run; `partition.seed` overrides the run's seed. Raises ConfigError.

    The public set is taken from the train part first, so it is disjoint from every client.
    """
    source, public = SamplePool.of(dataset), None
    options = with_client_count(config.partition, source)
    config = config.model_copy(update={"partition": options})
    seed = seed if options.seed is None else options.seed
    check_noise_clients(options, dataset)
    if (whole := load(options.name).whole) is not None:
        return whole(source, config, seed)
    check_targets(dataset, options)
    if config.public.size:
        public, reserved = draw_public(source, config.public, seed)
        source = source.without(reserved)
    train, test = deal(source, options, seed)
    check_sides(source, options, train, test)
    dealt = len(train.rows)
    train, val = hold_out_validation(train, source, config, random_stream(seed, "val"))
    lines = list[str]()
    if len(train.rows) < dealt:
        lines.append(
            f"{dealt - len(train.rows)} training samples are left out, because they overlap the first for validation"
        )
    if config.data.val and not source.val_rows and len(train.rows):
        lines += shared_lines(train, load(options.name).image(source), val)
    if source.val_rows:
        val, line = own_validation(train, val, source, config)
        lines.append(line)
    if options.test not in ("auto", "part") and not source.known:
        lines += side_lines(dataset, train.rows, test.rows)
    clients = client_rows(train, val, test, options.clients)
    warnings = tuple(deal_warnings(source, options, train, test, lines))
    return with_newcomers(Partition(clients, public, warnings, seed), options)


def resolved_options(dataset: Dataset, config: Config) -> PartitionConfig:
    """The keys `partition.*` with those that the data decide. Raises ConfigError."""
    return with_client_count(config.partition, SamplePool.of(dataset))


def check_sides(source: SamplePool, options: PartitionConfig, train: Assignment, test: Assignment) -> None:
    """Raises ConfigError if a client has no training or no test samples where parts are merged and split again."""
    sizes = {"training": train, "test": test}
    for part, hands in sizes.items():
        empty = np.flatnonzero(np.bincount(hands.owners, minlength=options.clients) == 0)
        if options.test not in MERGING or not len(empty):
            continue
        (other,) = (size for name, size in sizes.items() if name != part)
        rows = other.rows[other.owners == empty[0]]
        named = f" ({source.domain_names[source.domains[rows[0]]]})" if source.domain_names and len(rows) else ""
        why = f"samples of one {options.test_by} stay together" if options.test_by else f"test = {options.test}"
        raise ConfigError(
            f"partition.test_share = {options.test_share:g}: client {empty[0]}{named} has 0 {part} samples, because "
            f"{why}; change partition.test_share, or leave small clients out (partition.min_samples of natural)"
        )


def check_targets(dataset: Dataset, options: PartitionConfig) -> None:
    """Raises ConfigError if the scheme needs classes and the targets are none."""
    if not dataset.classes and not load(options.name).classless:
        able = [name for name, scheme in SCHEMES.loadable() if scheme.classless]
        raise ConfigError(
            f"partition.name = {options.name}: it needs classes, but the targets of data {dataset.name} are "
            f"{dataset.meaning}; take {', '.join(able)}"
        )


def deal(source: SamplePool, options: PartitionConfig, seed: int) -> Deal:
    """The training and test samples that the scheme gives to all clients. Raises ConfigError."""
    scheme = load(options.name)
    assert scheme.deal is not None
    try:
        return scheme.deal(source, check_keys(options), random_stream(seed, "deal"))
    except MemoryError as error:
        raise ConfigError(
            f"partition {options.name}: the samples of {options.clients} clients do not fit into memory "
            f"({first_line(error)}); lower partition.clients, or the number of samples of each"
        ) from None


def split_lines(source: SamplePool, options: PartitionConfig) -> Iterator[str]:
    """How the data are split into training and test samples, if a seed does it."""
    share, groups = f"{options.test_share:.0%}", groups_of(source, options)
    if options.test == "pooled" and source.one_part:
        yield f"the data set has no test part: {share} of its samples are held out for testing"
    elif options.test == "pooled" and not source.official:
        yield (
            f"the data's own test part ({len(source.test)} samples) is merged with the training part, and {share} of "
            "all samples are held out for testing; partition.test part keeps it"
        )
    if options.test == "part" and groups is not None:
        both = np.intersect1d(groups[source.train], groups[source.test])
        yield (
            f"{len(both)} of {len(np.unique(groups))} values of {options.test_by} are in both parts of the data: "
            "partition.test_by keeps them together in validation, and for testing too with partition.test stratified"
        )
    if options.test not in ("stratified", "last"):
        return
    have = "the data have one part" if source.one_part else "the parts of the data are merged"
    each_client = load(options.name).splits_clients and groups is None
    if options.test == "last":
        whose = " of every client" if each_client else " of every domain" if source.domain_names else ""
        order = options.order_by or ("time" if source.order is not None else "the order of rows")
        left_out = "; what overlaps the cut is left out" if source.extent else ""
        yield (
            f"{have}: the last {share} of the samples{whose}, by {order}, are for testing, and the last of the rest "
            f"for validation{left_out}"
        )
        return
    who = "each seed draws" if options.seed is None else f"partition.seed = {options.seed} draws"
    whose = "every client's samples" if each_client else "the samples"
    whole = f", whole groups of one {options.test_by} together" if groups is not None else ""
    by_class = ", by class" if source.classes > 1 else ""
    yield f"{have}: {who} {share} of {whose} for testing{by_class}{whole}"


def deal_warnings(
    source: SamplePool, options: PartitionConfig, train: Assignment, test: Assignment, lines: Iterable[str]
) -> Iterator[str]:
    """What a user should know of a deal. lines: what is known of its validation samples."""
    scheme, parts = load(options.name), ((train, "training"), (test, "test"))
    yield from split_lines(source, options)
    yield from unused_key_warnings(options)
    for part, name in parts:
        yield from repeated_image_warnings(part, name)
    yield from scheme.remarks(source, check_keys(options))
    yield from lines
    if options.reuse:
        image = scheme.image(source)
        for part, name in parts:
            yield from shared_image_warnings(part, name, image)
