"""Numbers of images per client and class as configured."""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal, round_to_total
from fedbench.data.partitions.classes import check_class_sizes
from fedbench.data.partitions.pool import SamplePool, draw_for_clients, parts_to_deal
from fedbench.data.partitions.scheme import Scheme
from fedbench.errors import ConfigError


class Options(PartitionConfig):
    counts: list[list[Annotated[int, Field(ge=0)]]] = Field(
        [], description="training samples (including validation) of every client: a list with one number per class"
    )


def deal(source: SamplePool, options: Options, rng: np.random.Generator) -> Deal:
    """The training images in `counts`, and `test_size` test images in each client's own proportions.

    Clients draw independently and may share images.
    """
    assert options.test_size is not None  # filled in where nothing is said
    counts = counts_array(options, source.classes)
    source = parts_to_deal(source, options, rng)
    tests = round_to_total(counts * options.test_size / counts.sum(axis=1, keepdims=True), options.test_size)
    check_class_sizes(counts, source, source.train, options, "training", "counts")
    check_class_sizes(tests, source, source.test, options, "test", "test_size")
    return draw_for_clients(source, source.train, counts, rng), draw_for_clients(source, source.test, tests, rng)


def counts_array(options: Options, classes: int) -> np.ndarray:
    """int64 [clients, classes]. Raises ConfigError."""
    if len(options.counts) != options.clients:
        raise ConfigError(
            f"partition.counts: {len(options.counts)} lists for partition.clients = {options.clients}; give one each"
        )
    for client, counts in enumerate(options.counts):
        if len(counts) != classes or not sum(counts):
            raise ConfigError(
                f"partition.counts: client {client} has {len(counts)} numbers with the sum {sum(counts)}; "
                f"give {classes}, one per class, not all 0"
            )
    return np.array(options.counts, np.int64)


def mean_size(options: Options, part: str) -> float | None:
    """Mean number of samples of a client in a part, `train` or `test`."""
    return options.test_size if part == "test" else sum(map(sum, options.counts)) / max(1, len(options.counts))


SCHEME = Scheme(
    deal, ("test_size",), Options=Options, sizes={"test_size": 100}, headline=("test_size",), size=mean_size
)
