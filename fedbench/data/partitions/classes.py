"""Partitions by whole classes per client or by equal pieces, of the whole data or of each domain."""

from collections.abc import Callable

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.config.words import plural
from fedbench.data.partitions.assignment import (
    Assignment,
    Deal,
    check_enough,
    deal_again,
    deal_out,
    even_sizes,
    join_assignments,
)
from fedbench.data.partitions.pool import SamplePool
from fedbench.errors import ConfigError

PROBES = 64
SHARD_KEYS = ("classes", "deal", "images", "test_images", "reuse")
"""Keys `partition.*` that schemes of whole classes read."""


def even_deal(
    source: SamplePool, options: PartitionConfig, clients: int, rng: np.random.Generator, where: str = ""
) -> Deal:
    """Equal pieces of both parts for these clients. where: names the source in messages."""
    check_enough(len(source.train), options, "training", "train_size", options.train_size or 1, clients, where)
    check_enough(len(source.test), options, "test", "test_size", options.test_size or 1, clients, where)
    return (
        deal_out(source.train, even_sizes(len(source.train), clients), rng, options.train_size),
        deal_out(source.test, even_sizes(len(source.test), clients), rng, options.test_size),
    )


def shard_deal(
    source: SamplePool, options: PartitionConfig, clients: int, rng: np.random.Generator, where: str = ""
) -> Deal:
    """Shards of both parts for these clients. where: names the source in messages."""
    table = deal_classes(source.classes, clients, options, rng)
    return (
        cut_classes(source, source.train, table, options, "training", rng, where),
        cut_classes(source, source.test, table, options, "test", rng, where),
    )


def shard_size(options: PartitionConfig, part: str) -> int | None:
    """Number of samples of a client in a part, `train` or `test`; None: all of its pieces."""
    each = options.images if part == "train" else options.test_images
    return each and each * options.classes


def deal_classes(classes: int, clients: int, options: PartitionConfig, rng: np.random.Generator) -> np.ndarray:
    """The classes of each client, int64 [clients, classes per client].

    even: every class equally often, up to one, without duplicates per client. shuffled: the same deck, but a client may
    get a class twice. random: every client draws its classes independently.
    """
    check_classes(classes, options)
    if options.deal == "random":
        return random_classes(classes, clients, options.classes, rng)
    slots = clients * options.classes
    deck = np.concatenate(
        [np.repeat(np.arange(classes), slots // classes), rng.permutation(classes)[: slots % classes]]
    )
    table = rng.permutation(deck).reshape(clients, options.classes)
    if options.deal == "even":
        for client in np.flatnonzero((np.diff(np.sort(table, axis=1), axis=1) == 0).any(axis=1)):
            while (double := first_repeated_slot(table[client])) is not None:
                swap_repeated_class(table, int(client), double, rng)
    return table


def random_classes(classes: int, clients: int, each: int, rng: np.random.Generator) -> np.ndarray:
    """Independent random classes for every client, without duplicates, int64 [clients, each]."""
    return rng.permuted(np.tile(np.arange(classes), (clients, 1)), axis=1)[:, :each]


def check_classes(classes: int, options: PartitionConfig) -> None:
    if options.classes > classes:
        raise ConfigError(
            f"partition.classes = {options.classes}: the data set has {classes} classes; at most that many per client"
        )


def check_class_sizes(
    counts: np.ndarray, source: SamplePool, rows: np.ndarray, options: PartitionConfig, part: str, key: str
) -> None:
    """Raises ConfigError if a client wants more of a class than these rows have. counts: [clients, classes]."""
    sizes, most = source.class_sizes(rows), counts.max(axis=0)
    if (most > sizes).any():
        label = int(np.argmax(most > sizes))
        raise ConfigError(
            f"partition {options.name}: class {source.numbers[label]} has {sizes[label]} {part} samples, a client "
            f"needs {most[label]} of it; lower partition.{key}"
        )


def first_repeated_slot(row: np.ndarray) -> int | None:
    """The first position whose class occurs earlier in the row."""
    return next((i for i in range(1, len(row)) if row[i] in row[:i]), None)


def swap_repeated_class(table: np.ndarray, client: int, slot: int, rng: np.random.Generator) -> None:
    """Swaps a duplicate class with a client that lacks it, so that the table has fewer duplicates.

    Such a client exists, because no class has more slots than there are clients; it can give a slot whose class the
    first client lacks, or else a duplicate of its own.
    """
    lacking = np.empty(0, np.int64)
    for some in (rng.integers(0, len(table), PROBES), np.arange(len(table))):  # a few clients nearly always suffice
        if not len(lacking):
            lacking = some[(table[some] != table[client, slot]).all(axis=1)]
    row = table[other := rng.choice(lacking)]
    fresh = [i for i in range(len(row)) if row[i] not in table[client]]
    give = rng.choice(fresh) if fresh else first_repeated_slot(row)
    table[client, slot], table[other, give] = table[other, give], table[client, slot]


def cut_classes(
    source: SamplePool,
    rows: np.ndarray,
    table: np.ndarray,
    options: PartitionConfig,
    part: str,
    rng: np.random.Generator,
    where: str,
) -> Assignment:
    """Cuts each class of these rows evenly among its holders, who keep `images` (`test_images`) of their piece, or all.

    A class with too few images is refused, or dealt again from its start (`reuse`).
    """
    key = "images" if part == "training" else "test_images"
    keep = getattr(options, key)
    pieces = []
    for label, pool in enumerate(source.by_class(rows)):
        holders = rng.permutation(np.nonzero(table == label)[0])
        if not len(holders):
            continue
        if len(pool) >= len(holders) * (keep or 1):
            piece = deal_out(pool, even_sizes(len(pool), len(holders)), rng, keep)
            pieces.append(Assignment(piece.rows, holders[piece.owners]))
        else:
            check_reuse(options, f"{where}class {source.numbers[label]}", len(pool), holders, key, part)
            pieces.append(deal_again(pool, holders, keep or 1, rng))
    return join_assignments(pieces)


def check_reuse(options: PartitionConfig, what: str, images: int, holders: np.ndarray, key: str, part: str) -> None:
    """Raises ConfigError if there are too few images and sharing is off, or too few for a single client."""
    each = getattr(options, key) or 1
    most = int(np.bincount(holders).max()) * each
    if options.reuse and most <= images:
        return
    need = f"{len(holders) * each} are needed, {each} for each of {plural(len(holders), 'client')}"
    if options.reuse:
        need = f"a client needs {most} different ones"
    remedy = f"lower partition.{key}"
    if not images or most <= images:  # fewer holders would suffice
        remedy += ", partition.clients or partition.classes"
    if most <= images:
        remedy = f"set partition.reuse true, so that clients share samples, or {remedy}"
    raise ConfigError(f"partition {options.name}: {what} has {images} {part} samples, and {need}; {remedy}")


def clients_each(source: SamplePool, options: PartitionConfig) -> int:
    """Clients per domain."""
    names = source.domain_names
    check_domains(source, options)
    if options.clients % len(names):
        raise ConfigError(
            f"partition {options.name}: partition.clients = {options.clients} is not a multiple of the {len(names)} "
            f"domains ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''})"
        )
    return options.clients // len(names)


def check_domains(source: SamplePool, options: PartitionConfig) -> None:
    if not source.domain_names:
        raise ConfigError(
            f"partition {options.name}: the data set has 0 domains, such as users; bring one with every sample (a "
            "third value of an item, or a column, data.user), or choose partition iid"
        )


def deal_in_domains(
    deal: Callable[..., Deal], source: SamplePool, options: PartitionConfig, each: int, rng: np.random.Generator
) -> Deal:
    """Deals every domain by itself to `each` clients; the second domain's clients follow the first's."""
    names = enumerate(source.domain_names)
    deals = [deal(source.in_domain(d), options, each, rng, f"in domain {name}, ") for d, name in names]
    train, test = (
        join_assignments([Assignment(hands.rows, hands.owners + i * each) for i, hands in enumerate(part)])
        for part in zip(*deals, strict=True)
    )
    return train, test
