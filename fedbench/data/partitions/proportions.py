"""Partitions whose clients have Dirichlet-distributed class proportions."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Assignment, Deal, apportion, check_enough, deal_out, join_assignments
from fedbench.data.partitions.held_out import held_out_sizes
from fedbench.data.partitions.pool import (
    SamplePool,
    draw_for_clients,
    draw_total,
    groups_of,
    merges_parts,
    parts_to_deal,
    split_hands,
)
from fedbench.errors import ConfigError

DIRICHLET_KEYS = ("alpha", "min_images", "max_draws", "test_size")
"""Keys `partition.*` that these schemes read."""


def cut_by_shares(source: SamplePool, options: PartitionConfig, rng: np.random.Generator, balanced: bool) -> Deal:
    """The training and test images of both schemes.

    Test images are held out of each client's images (stratified, last, pooled), are the test part cut in the same
    proportions (part), or are `test_size` images of the test part in the client's class proportions (drawn). Groups
    that stay together (`test_by`) are held out first, because a group may be dealt to several clients.
    """
    anew = merges_parts(source, options)
    if anew and groups_of(source, options) is not None:
        source, anew = parts_to_deal(source, options, rng), False
    else:
        source = draw_total(source, options, rng)
    sizes = source.class_sizes(source.train)
    part = "training or test" if anew else "training"
    check_enough(len(source.train), options, part, "min_images", options.min_images)
    if not anew and options.test != "drawn":
        check_enough(len(source.test), options, "test", "test_size")
    for _ in range(options.max_draws):
        ends = draw_ends(sizes, options, rng, balanced)
        train = piece_sizes(ends, sizes)
        test = test_sizes(ends, train, source, options, anew)
        if train.sum(axis=0).min() >= options.min_images and test.min() >= 1:
            break
    else:
        images = f"{options.min_images} {'samples' if anew else 'training samples'}"
        raise ConfigError(
            f"partition {options.name}: none of {options.max_draws} draws with alpha {options.alpha} gave each of "
            f"{options.clients} clients {images} and a test sample; raise partition.alpha, lower partition.min_images "
            "or partition.clients, or raise partition.max_draws"
        )
    hands = deal_pieces(source, source.train, train, rng)
    if anew:
        return split_hands(hands, source.labels[hands.rows], source, options, rng)
    if options.test == "drawn":
        assert options.test_size  # filled in where nothing is said
        return hands, draw_in_proportion(source, train.T, options.test_size, rng)
    return hands, deal_pieces(source, source.test, piece_sizes(ends, source.class_sizes(source.test)), rng)


def draw_ends(sizes: np.ndarray, options: PartitionConfig, rng: np.random.Generator, balanced: bool) -> np.ndarray:
    """The end of each client's piece of a class, as a share of the class, float64 [classes, clients]."""
    concentration = np.full(options.clients, options.alpha)
    if not balanced:
        shares = rng.dirichlet(concentration, size=len(sizes))
        shares[:, -1] = np.inf  # the last client gets the rest
        return np.cumsum(shares, axis=1).clip(0, 1)
    ends, client_sizes = np.empty((len(sizes), options.clients)), np.zeros(options.clients)
    for label, size in enumerate(sizes):
        open_to = (client_sizes * options.clients < sizes.sum()) | (size == 0)
        while not (shares := rng.dirichlet(concentration) * open_to).any():
            pass
        ends[label] = np.cumsum(shares)
        ends[label] /= ends[label, -1]
        client_sizes += piece_sizes(ends[label : label + 1], np.array([size]))[0]
    return ends


def piece_sizes(ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Numbers of images per class and client, int64 [classes, clients]: the intervals between ends, rounded down.

    sizes: images [classes].
    """
    return np.diff((ends * sizes[:, None]).astype(np.int64), axis=1, prepend=0)


def test_sizes(
    ends: np.ndarray, train: np.ndarray, source: SamplePool, options: PartitionConfig, anew: bool
) -> np.ndarray:
    """Numbers of test images per client, int64 [clients]."""
    sizes = train.sum(axis=0)
    if anew:
        pooled = options.test == "pooled"
        return (sizes * options.test_share).astype(np.int64) if pooled else held_out_sizes(sizes, options.test_share)
    if options.test == "drawn":
        return np.full(options.clients, options.test_size)
    return piece_sizes(ends, source.class_sizes(source.test)).sum(axis=0)


def deal_pieces(source: SamplePool, rows: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Assignment:
    """Shuffles these rows class by class and cuts them into pieces of these sizes [classes, clients]."""
    return join_assignments(
        [deal_out(pool, count, rng) for pool, count in zip(source.by_class(rows), counts, strict=True)]
    )


def draw_in_proportion(source: SamplePool, train: np.ndarray, size: int, rng: np.random.Generator) -> Assignment:
    """`size` test images per client in its class proportions; clients may share some. train: [clients, classes].

    Raises ConfigError if a class of a client is not in the test part.
    """
    clients, classes = train.shape
    owners = np.repeat(np.arange(clients), classes)
    counts = apportion(train.ravel(), owners, np.full(clients, size), rng).reshape(train.shape)
    check_no_class_empty("drawn", source, [("test", source.test)], counts.sum(axis=0) > 0)
    return draw_for_clients(source, source.test, counts, rng)


def check_no_class_empty(
    scheme: str, source: SamplePool, rows: list[tuple[str, np.ndarray]], needs: np.ndarray
) -> None:
    for part, numbers in rows:
        empty = np.flatnonzero((source.class_sizes(numbers) == 0) & needs)
        if len(empty):
            label = source.numbers[empty[0]]
            raise ConfigError(f"partition {scheme}: class {label} has no {part} image, but a client may draw it")
