"""Newcomers: clients that take no part in training and join after the last round."""

from dataclasses import replace

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import random_stream
from fedbench.data.partitions.rows import Partition
from fedbench.errors import ConfigError


def check_newcomers(options: PartitionConfig) -> None:
    """Raises ConfigError if no client is left to train."""
    if options.trained_clients < 1:
        most = f"take at most {options.clients - 1}" if options.clients > 1 else "leave it out"
        raise ConfigError(
            f"partition.new_clients = {options.new_clients:g}: at least 1 of {options.clients} clients must train; "
            f"{most}"
        )


def with_newcomers(dealt: Partition, options: PartitionConfig, last: bool = False) -> Partition:
    """The partition with `partition.new_clients` of its clients set apart, and the other ones renumbered.

    They are drawn from a stream of their own, so that no other draw depends on them. last: take the last ones instead.
    """
    count, stay = len(dealt.clients), options.trained_clients
    if stay == count:
        return dealt
    order = np.arange(count) if last else random_stream(dealt.seed, "newcomers").permutation(count)
    parts = (dealt.clients.subset(np.sort(numbers)) for numbers in np.split(order, [stay]))
    clients, newcomers = parts
    return replace(dealt, clients=clients, newcomers=newcomers)
