"""Numbers of images per client and class as configured."""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal, SamplePool, draw_for_clients, parts_to_deal, round_to_total
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
    return (
        draw_for_clients(source, source.train, check_enough_of_classes(counts, source, source.train, "training"), rng),
        draw_for_clients(source, source.test, check_enough_of_classes(tests, source, source.test, "test"), rng),
    )


def counts_array(options: Options, classes: int) -> np.ndarray:
    """int64 [clients, classes]. Raises ConfigError."""
    if len(options.counts) != options.clients:
        raise ConfigError(
            f"partition.counts: {len(options.counts)} lists for partition.clients = {options.clients}; give one each"
        )
    for client, own in enumerate(options.counts):
        if len(own) != classes or not sum(own):
            raise ConfigError(
                f"partition.counts: client {client} has {len(own)} numbers with the sum {sum(own)}; "
                f"give {classes}, one per class, not all 0"
            )
    return np.array(options.counts, np.int64)


def check_enough_of_classes(counts: np.ndarray, source: SamplePool, rows: np.ndarray, part: str) -> np.ndarray:
    """Returns the counts. Raises ConfigError if a client wants more of a class than there is."""
    sizes, most = source.class_sizes(rows), counts.max(axis=0)
    if (most > sizes).any():
        label = int(np.argmax(most > sizes))
        raise ConfigError(
            f"partition counts: class {source.numbers[label]} has {sizes[label]} {part} samples, a client wants "
            f"{most[label]} of it; lower partition.counts or partition.test_size"
        )
    return counts


SCHEME = Scheme(deal, reads=("test_size",), Options=Options, sizes={"test_size": 100}, headline=("test_size",))
