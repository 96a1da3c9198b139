"""A host's data: every client's part of it, on the host's device."""

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedbench.config import Config
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import Dataset, Split
from fedbench.data.noise import client_labels
from fedbench.data.partitions import Partition

Key = tuple[int | str, ...]


class ClientData:
    """Gathers normalised batches of clients' parts out of one copy of the data set."""

    def __init__(
        self, config: Config, dataset: Dataset, partition: Partition, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config, self.dataset, self.partition, self.device, self.dtype = config, dataset, partition, device, dtype
        self._images = resident(as_tensor(dataset.images), device)
        data = config.data
        self._augmentation = (
            Augmentation(data.augment, data.crop_padding, data.rotate_degrees) if data.augment else None
        )
        self._scale, self._shift = dataset.scale_and_shift(device, dtype)

    def split(self, clients: Sequence[int], part: str, key: Key) -> Split:
        """Part 'train', 'val' or 'test' of these clients, one after the other."""
        empty = torch.zeros(0, dtype=torch.int64)
        rows = [torch.as_tensor(getattr(self.partition.clients[n], part)) for n in clients]
        labels = [client_labels(self.dataset, self.partition, self.config, n, part) for n in clients]
        return self._gatherer(torch.cat([empty, *rows]), torch.cat([empty, *labels]), key)

    def public(self, key: Key) -> Split | None:
        """The public images, whose labels nobody knows."""
        if self.partition.public is None:
            return None
        rows = torch.as_tensor(self.partition.public)
        return self._gatherer(rows, torch.zeros(len(rows), dtype=torch.int64), key)

    def _gatherer(self, rows: Tensor, labels: Tensor, key: Key) -> Split:
        channels_last = self.config.train.memory_format == "channels_last"
        return Split(
            self._images,
            rows.to(self.device),
            labels.to(self.device),
            self._scale,
            self._shift,
            key,
            memory_format=torch.channels_last if channels_last else torch.contiguous_format,
            dtype=self.dtype,
            augmentation=self._augmentation,
        )


def as_tensor(array: np.ndarray) -> Tensor:
    """A view of an array in shared or mapped memory, which nobody may write to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only, and so it shall be
        return torch.from_numpy(array)


def resident(images: Tensor, device: torch.device) -> Tensor:
    """The images on the device where they take at most a quarter of its free memory; else batches are sent there."""
    if device.type == "cuda" and images.nbytes > torch.cuda.mem_get_info(device)[0] // 4:
        return images
    return images.to(device)
