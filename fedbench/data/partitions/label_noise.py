"""Wrong labels for chosen clients."""

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.assignment import random_stream
from fedbench.data.partitions.rows import Partition
from fedbench.errors import ConfigError


def client_targets(dataset: Dataset, partition: Partition, config: Config, client: int, part: str) -> np.ndarray:
    """Targets [n, ...] of a client's part ('train', 'val' or 'test') as the client sees them."""
    options = config.partition
    rows = getattr(partition.rows_of(client), part)
    targets = dataset.targets[rows]
    if client in options.noise_clients and part != "test":
        targets = noisy_labels(dataset, partition, options.noise_rate, client, rows)
    if client in options.flip_clients:
        targets = (targets + 1) % dataset.classes
    return targets


def noisy_labels(dataset: Dataset, partition: Partition, rate: float, client: int, rows: np.ndarray) -> np.ndarray:
    """Labels of these rows, int64; round(rate * n) of the client's n training and validation images get a wrong one.

    A wrong label is uniformly one of the others. Copies of an image get the same label. The result depends on the seed
    of the partition only, so it is the same in every process and round.
    """
    own = partition.rows_of(client)
    images = np.unique(np.concatenate([own.train, own.val]))
    rng = random_stream(partition.seed, "noise", client)
    wrong = rng.permutation(len(images))[: int(rate * len(images) + 0.5)]
    labels = dataset.labels[images].copy()
    labels[wrong] = (labels[wrong] + rng.integers(1, max(2, dataset.classes), len(wrong))) % dataset.classes
    return labels[np.searchsorted(images, rows)]


def check_noise_clients(options: PartitionConfig, dataset: Dataset) -> None:
    """Raises ConfigError for client numbers that do not exist, and if there are no labels to change."""
    for key in ("flip_clients", "noise_clients"):
        for client in getattr(options, key):
            if not dataset.classes:
                raise ConfigError(
                    f"partition.{key}: the targets of data {dataset.name} are {dataset.meaning}; leave it empty"
                )
            if not 0 <= client < options.clients:
                raise ConfigError(
                    f"partition.{key}: client {client} does not exist; clients are 0 to {options.clients - 1}"
                )
