"""A data set in memory-mapped form, and one client's part of it."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedbench.data.augmentation import Augmentation
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.config import DataConfig

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Decoded images of one data set; train part first, then test part.

    images: uint8 [rows, channels, height, width], memory-mapped. labels: int64 [rows]. domains: int64 [rows] or None.
    Rows 0 .. train_rows-1 are the source's train part. mean, std: per channel, of pixels in [0, 1].
    folder: where it lies in the cache; a Dataset pickles as that folder, so all processes of a machine map one copy.
    notes: what a reader of results should know about the data.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    domains: np.ndarray | None
    classes: int
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    train_rows: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    notes: tuple[str, ...] = ()
    folder: Path | None = None

    @classmethod
    def load(cls, config: "DataConfig", progress: Progress | None = None) -> "Dataset":
        """The data set that a configuration names, decoded at the first call on this machine. Raises ConfigError."""
        from fedbench.data import cache, sources

        dataset = cls.open(cache.prepare(sources.find(config, progress), progress))
        return dataset.normalised(config.mean, config.std)

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """The prepared data set in a folder of the cache. Raises ConfigError."""
        from fedbench.data import cache

        return cls(**cache.read(folder), folder=folder)

    def normalised(self, mean: Sequence[float], std: Sequence[float]) -> "Dataset":
        """With other constants, one for all channels or one each; those that are empty stay. Raises ConfigError."""
        channels, found = self.shape[0], {"mean": self.mean, "std": self.std}
        for key, values in (("mean", mean), ("std", std)):
            if len(values) not in (0, 1, channels):
                raise ConfigError(
                    f"data.{key} = {[*values]}: {self.name} has {channels} channels; one value, or as many"
                )
            if values:
                found[key] = tuple(values) if len(values) > 1 else tuple(values) * channels
        return self if found == {"mean": self.mean, "std": self.std} else replace(self, **found)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple:
        if self.folder is None:
            return super().__reduce__()  # type: ignore[return-value]
        return reopened, (self.folder, self.mean, self.std)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of every image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def test_rows(self) -> int:
        return len(self.labels) - self.train_rows

    def scale_and_shift(
        self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """The two factors [C, 1, 1] with pixel * scale + shift = (pixel / 255 - mean) / std."""
        mean = torch.tensor(self.mean, dtype=torch.float64).view(-1, 1, 1)
        std = torch.tensor(self.std, dtype=torch.float64).view(-1, 1, 1)
        return (1 / (255 * std)).to(device, dtype), (-mean / std).to(device, dtype)


def reopened(folder: Path, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """A data set that travelled as its folder."""
    return Dataset.open(folder).normalised(mean, std)


class Split:
    """One client's part of a data set: a gatherer of normalised batches.

    images: uint8 [rows, C, H, W], one tensor for all splits of a process. rows: int64 [n], where in it the part lies.
    labels: int64 [n], which need not be those of the data set (flipped, or hidden). scale, shift: [C, 1, 1].
    key: names the random streams of whoever makes batches of it. All of them on one device, on which batches are made;
    images that do not fit there may stay on the CPU. augmentation: what `augmented` does to a batch, if anything.
    """

    def __init__(
        self,
        images: Tensor,
        rows: Tensor,
        labels: Tensor,
        scale: Tensor,
        shift: Tensor,
        key: tuple[int | str, ...],
        memory_format: torch.memory_format = torch.contiguous_format,
        dtype: torch.dtype = torch.float32,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.images, self.rows, self.labels, self.key = images, rows, labels, key
        self.augmentation = augmentation
        self.stream: torch.Generator | None = None
        self.scale, self.shift = scale.to(dtype), shift.to(dtype)
        self.memory_format, self.dtype = memory_format, dtype

    def __len__(self) -> int:
        return len(self.rows)

    def augmented(self, stream: torch.Generator) -> "Split":
        """The same part as training sees it: each batch augmented with the next draws of a CPU stream."""
        twin = copy(self)
        twin.stream = stream if self.augmentation else None
        return twin

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Images [b, C, H, W] and labels [b] at these positions (int64 [b]) of the split."""
        rows = self.rows.index_select(0, index)
        pixels = self.images.index_select(0, rows.to(self.images.device)).to(rows.device)
        if self.augmentation and self.stream:
            pixels = self.augmentation(pixels, self.stream)
        # Normalised before the layout changes: three channels innermost would make both operations eight times slower.
        x = pixels.to(self.dtype).mul_(self.scale).add_(self.shift)
        return x.contiguous(memory_format=self.memory_format), self.labels.index_select(0, index)
