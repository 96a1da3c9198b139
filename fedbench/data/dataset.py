"""A data set in memory-mapped form, and one client's part of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

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

        return cls.open(cache.prepare(sources.find(config, progress), progress))

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """The prepared data set in a folder of the cache. Raises ConfigError."""
        from fedbench.data import cache

        return cls(**cache.read(folder), folder=folder)

    def __reduce__(self) -> tuple:
        if self.folder is None:
            return super().__reduce__()  # type: ignore[return-value]
        return type(self).open, (self.folder,)

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


class Split:
    """One client's part of a data set: a gatherer of normalised batches.

    images: uint8 [rows, C, H, W], one tensor for all splits of a process. rows: int64 [n], where in it the part lies.
    labels: int64 [n], which need not be those of the data set (flipped, or hidden). scale, shift: [C, 1, 1].
    All of them on one device. key: names the random streams of whoever makes batches of it.
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
    ) -> None:
        self.images, self.rows, self.labels, self.key = images, rows, labels, key
        self.scale, self.shift = scale.to(dtype), shift.to(dtype)
        self.memory_format, self.dtype = memory_format, dtype

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Images [b, C, H, W] and labels [b] at these positions (int64 [b]) of the split."""
        pixels = self.images.index_select(0, self.rows.index_select(0, index))
        # Normalised before the layout changes: three channels innermost would make both operations eight times slower.
        x = pixels.to(self.dtype).mul_(self.scale).add_(self.shift)
        return x.contiguous(memory_format=self.memory_format), self.labels.index_select(0, index)
