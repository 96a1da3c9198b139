"""Schemes in which the classes of the clients differ by a Dirichlet distribution."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.holdings import (
    Deal,
    Holdings,
    Source,
    apportion,
    check_enough,
    choose,
    deal_out,
    held_out,
    parts,
    pooled,
    sampled,
    together,
)
from fedbench.errors import ConfigError


def dirichlet(source: Source, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Each class is cut among all clients in proportions drawn from Dirichlet(alpha); every image is dealt once.

    The protocol of FedOBP and FL-bench: train and test part are pooled, and int(test_share * n) of a client's n images,
    any of them, are its test images. Drawn again, at most `max_draws` times, until all have `min_images`.
    """
    return cut_by_shares(source, options, rng, balanced=False)


def practical(source: Source, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """As dirichlet, but a client that has its even share of all images gets none of the classes that follow.

    The "practical" setting of PFLlib and FedMosaic: the sizes of the clients differ less.
    """
    return cut_by_shares(source, options, rng, balanced=True)


def cut_by_shares(source: Source, options: PartitionConfig, rng: np.random.Generator, balanced: bool) -> Deal:
    """The training and test images of both schemes.

    Test images are held out of each client's images (pooled), are the test part cut in the same proportions (part), or
    `test_size` images of the test part in the proportions of the client's classes (drawn).
    """
    anew = pooled(source, options)
    source = sampled(source, options, rng)
    sizes = source.class_sizes(source.train)
    part = "training or test" if anew else "training"
    check_enough(len(source.train), options, part, "min_images", options.min_images)
    if not anew and options.test != "drawn":
        check_enough(len(source.test), options, "test", "test_size")
    for _ in range(options.max_draws):
        ends = draw_ends(sizes, options, rng, balanced)
        train = pieces(ends, sizes)
        test = test_sizes(ends, train, source, options, anew)
        if train.sum(axis=0).min() >= options.min_images and test.min() >= 1:
            break
    else:
        images = f"{options.min_images} {'images' if anew else 'training images'}"
        raise ConfigError(
            f"partition {options.name}: none of {options.max_draws} draws with alpha {options.alpha} gave each of "
            f"{options.clients} clients {images} and a test image; raise partition.alpha, lower partition.min_images "
            "or partition.clients, or raise partition.max_draws"
        )
    hands = cut(source, source.train, train, rng)
    if anew:
        held = held_out(hands, options.test_share, rng)
        return Holdings(hands.rows[~held], hands.owners[~held]), Holdings(hands.rows[held], hands.owners[held])
    if options.test == "drawn":
        return hands, choose_alike(source, train.T, options.test_size, rng)
    return hands, cut(source, source.test, pieces(ends, source.class_sizes(source.test)), rng)


def draw_ends(sizes: np.ndarray, options: PartitionConfig, rng: np.random.Generator, balanced: bool) -> np.ndarray:
    """Where each client's piece of a class ends, as a share of the class, float64 [classes, clients]."""
    concentration = np.full(options.clients, options.alpha)
    if not balanced:
        shares = rng.dirichlet(concentration, size=len(sizes))
        shares[:, -1] = np.inf  # the last client takes what is left
        return np.cumsum(shares, axis=1).clip(0, 1)
    ends, held = np.empty((len(sizes), options.clients)), np.zeros(options.clients)
    for label, size in enumerate(sizes):
        open_to = (held * options.clients < sizes.sum()) | (size == 0)
        while not (shares := rng.dirichlet(concentration) * open_to).any():
            pass
        ends[label] = np.cumsum(shares)
        ends[label] /= ends[label, -1]
        held += pieces(ends[label : label + 1], np.array([size]))[0]
    return ends


def pieces(ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Images of each class and client, int64 [classes, clients]: what lies between the ends, cut down to whole images.

    sizes: images [classes].
    """
    return np.diff((ends * sizes[:, None]).astype(np.int64), axis=1, prepend=0)


def test_sizes(ends: np.ndarray, train: np.ndarray, source: Source, options: PartitionConfig, anew: bool) -> np.ndarray:
    """Test images of each client, int64 [clients]."""
    held = train.sum(axis=0)
    if anew:
        return (held * options.test_share).astype(np.int64)
    if options.test == "drawn":
        return np.full(options.clients, options.test_size)
    return pieces(ends, source.class_sizes(source.test)).sum(axis=0)


def cut(source: Source, rows: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Holdings:
    """These rows, class by class shuffled, in pieces of so many [classes, clients]."""
    return together([deal_out(pool, count, rng) for pool, count in zip(source.by_class(rows), counts, strict=True)])


def choose_alike(source: Source, held: np.ndarray, size: int, rng: np.random.Generator) -> Holdings:
    """size test images per client in the proportions of its classes; clients may share some. held: [clients, classes].

    Raises ConfigError where a class that a client has is not in the test part.
    """
    clients, classes = held.shape
    owners = np.repeat(np.arange(clients), classes)
    counts = apportion(held.ravel(), owners, np.full(clients, size), rng).reshape(held.shape)
    check_no_class_empty("drawn", source, [("test", source.test)], counts.any(axis=0))
    return choose(source, source.test, counts, rng)


def dirichlet_fixed(source: Source, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Each client draws class proportions from Dirichlet(alpha) and then `train_size` and `test_size` images by them.

    Clients draw independently of each other and may share images; only where a client wants more of a class than there
    is does it hold images twice. The protocol of FedCAC (ICCV 2023, section 4.1) with alpha per class.
    """
    source = parts(source, options, rng)
    every = np.ones(source.classes, bool)
    check_no_class_empty(options.name, source, [("training", source.train), ("test", source.test)], every)
    shares = rng.dirichlet(np.full(source.classes, options.alpha), size=options.clients)  # [clients, classes]
    return (
        choose(source, source.train, fixed_counts(shares, options.train_size), rng),
        choose(source, source.test, fixed_counts(shares, options.test_size), rng),
    )


def check_no_class_empty(scheme: str, source: Source, rows: list[tuple[str, np.ndarray]], wanted: np.ndarray) -> None:
    for part, numbers in rows:
        empty = np.flatnonzero((source.class_sizes(numbers) == 0) & wanted)
        if len(empty):
            raise ConfigError(f"partition {scheme}: class {empty[0]} has no {part} image, and a client may draw it")


def fixed_counts(shares: np.ndarray, size: int) -> np.ndarray:
    """Images of each client and class, int64 [clients, classes], that add up to size.

    Rounded class by class while any are left, so that late classes may starve; the last takes the rest.
    """
    counts = np.floor(size * shares + 0.5).astype(np.int64)
    left = np.full(len(shares), size)
    for label in range(shares.shape[1] - 1):
        counts[:, label] = np.minimum(counts[:, label], left)
        left -= counts[:, label]
    counts[:, -1] = left
    return counts
