"""A few random classes per client; clients may share images."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Assignment, Deal, even_sizes
from fedbench.data.partitions.classes import check_class_sizes, check_classes, random_classes
from fedbench.data.partitions.pool import SamplePool, draw_for_clients, parts_to_deal
from fedbench.data.partitions.scheme import FEDCAC_SIZES, Scheme
from fedbench.errors import ConfigError


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """`classes` random classes per client, and `train_size` and `test_size` images in equal parts of them.

    Clients draw independently and may share images; a client's own images all differ. The protocol of FedCAC (ICCV
    2023, section 4.1).
    """
    assert options.train_size is not None  # both are filled in where nothing is said
    assert options.test_size is not None
    check_classes(source.classes, options)
    source = parts_to_deal(source, options, rng)
    table = random_classes(source.classes, options.clients, options.classes, rng)
    return (
        choose_equally(source, source.train, table, options, "train", rng),
        choose_equally(source, source.test, table, options, "test", rng),
    )


def choose_equally(
    source: SamplePool,
    rows: np.ndarray,
    table: np.ndarray,
    options: PartitionConfig,
    part: str,
    rng: np.random.Generator,
) -> Assignment:
    """`PART_size` images per client in equal parts of its classes; the first ones give one more for the remainder."""
    size = getattr(options, f"{part}_size")
    each = even_sizes(size, table.shape[1])
    if not each[-1]:
        raise ConfigError(
            f"partition.{part}_size = {size}: a client has {len(each)} classes; use at least one image of each"
        )
    counts = np.zeros((len(table), source.classes), np.int64)
    np.put_along_axis(counts, table, each, axis=1)
    check_class_sizes(counts, source, rows, options, part, f"{part}_size")
    return draw_for_clients(source, rows, counts, rng)


SCHEME = Scheme(deal, ("classes", "train_size", "test_size"), sizes=FEDCAC_SIZES, headline=("classes", "train_size"))
