"""Wrong labels on purpose, for chosen clients."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.data.partitions import Partition


def flipped(labels: Tensor, classes: int) -> Tensor:
    """Every label c becomes (c + 1) mod classes."""
    return (labels + 1) % classes


def client_labels(dataset: Dataset, partition: "Partition", config: Config, client: int, part: str) -> Tensor:
    """Labels int64 [n] of a client's part ('train', 'val' or 'test'), as that client sees them."""
    labels = torch.from_numpy(dataset.labels[getattr(partition.clients[client], part)])
    return flipped(labels, dataset.classes) if client in config.partition.flip_clients else labels


def check_flips(chosen: Iterable[int], clients: int) -> None:
    """Raises ConfigError for a client number that does not exist."""
    for client in chosen:
        if not 0 <= client < clients:
            raise ConfigError(f"partition.flip_clients: client {client} does not exist; clients are 0 to {clients - 1}")
