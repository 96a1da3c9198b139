"""Equally many images per client, in its own Dirichlet proportions."""

from collections.abc import Iterator

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.pool import SamplePool, draw_for_clients, parts_to_deal
from fedbench.data.partitions.proportions import check_no_class_empty
from fedbench.data.partitions.scheme import FEDCAC_SIZES, Scheme

FEW = 3
"""Samples of a class, in the mean, below which rounding distorts proportions."""


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Each client draws class proportions from Dirichlet(alpha) and then `train_size` and `test_size` images.

    Clients draw independently and may share images; a client holds an image twice only if it wants more of a class than
    there is. The protocol of FedCAC (ICCV 2023, section 4.1) with alpha per class.
    """
    assert options.train_size is not None  # both are filled in where nothing is said
    assert options.test_size is not None
    source = parts_to_deal(source, options, rng)
    every = np.ones(source.classes, bool)
    check_no_class_empty(options.name, source, [("training", source.train), ("test", source.test)], every)
    shares = rng.dirichlet(np.full(source.classes, options.alpha), size=options.clients)  # [clients, classes]
    return (
        draw_for_clients(source, source.train, fixed_counts(shares, options.train_size), rng),
        draw_for_clients(source, source.test, fixed_counts(shares, options.test_size), rng),
    )


def fixed_counts(shares: np.ndarray, size: int) -> np.ndarray:
    """Numbers of images per client and class, int64 [clients, classes], that sum to size.

    Rounded class by class while any are left, so late classes may get none; the last takes the rest.
    """
    counts = np.floor(size * shares + 0.5).astype(np.int64)
    left = np.full(len(shares), size)
    for label in range(shares.shape[1] - 1):
        counts[:, label] = np.minimum(counts[:, label], left)
        left -= counts[:, label]
    counts[:, -1] = left
    return counts


def remarks(source: SamplePool, options: PartitionConfig) -> Iterator[str]:
    """A line where a client has so few samples of a class that rounding decides its proportions."""
    assert options.train_size is not None
    assert options.test_size is not None
    for part, size in (("train", options.train_size), ("test", options.test_size)):
        if size < FEW * source.classes:
            yield (
                f"partition.{part}_size = {size}: proportions of {source.classes} classes are rounded one by one, and "
                f"the last class gets what is left, more samples than its share; take {FEW} a class or more"
            )


SCHEME = Scheme(
    deal, ("alpha", "train_size", "test_size"), sizes=FEDCAC_SIZES, headline=("alpha", "train_size"), remarks=remarks
)
