"""A host's data: the parts of its clients, on the host's device."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.config import Config
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import Dataset
from fedbench.data.imputation import medians_of
from fedbench.data.partitions import Partition
from fedbench.data.partitions.label_noise import client_targets
from fedbench.data.split import Split, scale_and_shift
from fedbench.module.seeds import Key
from fedbench.runtime.machine.gpu import free_bytes

PARTS = "train", "val", "test"
KEPT_CLIENTS = 10_000
"""Clients whose rows, targets and owners a host keeps as tensors."""
Numbers = tuple[Tensor, Tensor, Tensor]


class ClientData:
    """Gathers normalised batches of clients' parts from one copy of the data set."""

    def __init__(
        self, config: Config, dataset: Dataset, partition: Partition, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config, self.dataset, self.partition, self.device, self.dtype = config, dataset, partition, device, dtype
        # What rows belong to, such as patients, int64 [rows]; None if rows are independent.
        self.row_groups: np.ndarray | None = dataset.groups
        self._samples = resident(as_tensor(dataset.samples), device)
        data = config.data
        self._augmentation = (
            Augmentation(data.augment, data.crop_padding, data.rotate_degrees) if data.augment else None
        )
        self._factors = scale_and_shift(dataset, device, dtype)
        medians = medians_of(dataset, partition)
        self._medians = None if medians is None else torch.from_numpy(medians).to(device)
        self._kept: dict[int, list[Numbers]] = {}

    def split(self, clients: Sequence[int], part: str, key: Key) -> Split:
        """Part 'train', 'val' or 'test' of these clients, concatenated."""
        if len(clients) != 1:
            return self._gatherer(self._rows_of(clients, part), key)
        # Finding these few numbers and sending them to a GPU takes longer than training on a small model.
        if clients[0] not in self._kept:
            if len(self._kept) == KEPT_CLIENTS:
                self._kept.clear()
            self._kept[clients[0]] = self._numbers_of(clients[0])
        return self._gatherer(self._kept[clients[0]][PARTS.index(part)], key)

    def _numbers_of(self, client: int) -> list[Numbers]:
        """Rows, targets and owners of a client's parts, sent to the device at once."""
        places = [self._rows_of([client], name) for name in PARTS]
        whole = [self._on_device(torch.cat(numbers)) for numbers in zip(*places, strict=True)]
        sizes = [len(rows) for rows, *_ in places]
        return [*zip(*(numbers.split(sizes) for numbers in whole), strict=True)]

    def _rows_of(self, clients: Sequence[int], part: str) -> Numbers:
        """Rows, targets and owners of these clients' samples."""
        nothing = np.zeros(0, np.int64)
        rows = [nothing, *(getattr(self.partition.rows_of(n), part) for n in clients)]
        targets = [client_targets(self.dataset, self.partition, self.config, n, part) for n in clients]
        whole = np.concatenate([self.dataset.targets[nothing], *targets])
        owners = np.repeat(np.array(clients, np.int64), [len(rows_of_client) for rows_of_client in rows[1:]])
        return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(whole), torch.from_numpy(owners)

    def _on_device(self, numbers: Tensor) -> Tensor:
        """Rows or targets on the device, in the run's precision."""
        return numbers.to(self.device, self.dtype) if numbers.is_floating_point() else numbers.to(self.device)

    def public(self, key: Key) -> Split | None:
        """The public samples, without targets."""
        if self.partition.public is None:
            return None
        rows = self.partition.public
        unknown = np.zeros_like(self.dataset.targets, shape=(len(rows), *self.dataset.targets.shape[1:]))
        owners = np.full(len(rows), len(self.partition.clients) + len(self.partition.newcomers))
        return self._gatherer((torch.from_numpy(rows), torch.from_numpy(unknown), torch.from_numpy(owners)), key)

    def groups(self, split: Split) -> dict[str, Tensor]:
        """The groups of `evaluate.by` in a part, such as `class=3` or `domain=photo`: bool [n] each."""
        kinds: dict[str, tuple[Tensor, Sequence[Any]]] = {}
        if "class" in self.config.evaluate.by:
            kinds["class"] = split.labels, range(self.dataset.classes)
        if "domain" in self.config.evaluate.by and self.dataset.domains is not None:
            domains = torch.from_numpy(self.dataset.domains[split.rows.cpu().numpy()])
            kinds["domain"] = domains.to(self.device), self.dataset.domain_names
        return {
            f"{kind}={names[number]}": of == number
            for kind, (of, names) in kinds.items()
            for number in torch.unique(of).tolist()
        }

    def _gatherer(self, numbers: Numbers, key: Key) -> Split:
        """A split of these rows, targets and owners."""
        rows, targets, owners = map(self._on_device, numbers)
        channels_last = self.config.train.memory_format == "channels_last"
        return Split(
            self._samples,
            rows,
            targets,
            self._factors,
            key,
            memory_format=torch.channels_last if channels_last else torch.contiguous_format,
            dtype=self.dtype,
            augmentation=self._augmentation,
            owners=owners,
            medians=self._medians,
        )


def as_tensor(array: np.ndarray) -> Tensor:
    """A view of an array in shared or mapped memory, which must not be modified."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is meant to be read-only
        return torch.from_numpy(array)


def resident(samples: Tensor, device: torch.device) -> Tensor:
    """The samples on the device if they take at most a quarter of its free memory; else batches are sent there."""
    if device.type == "cuda" and samples.nbytes > free_bytes() // 4:
        return samples
    return samples.to(device)
