"""One client's part of a data set, as batches of tensors."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from fedbench.data.augmentation import Augmentation, Draws
from fedbench.data.dataset import Dataset


def scale_and_shift(
    dataset: Dataset, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor] | None:
    """The two factors [C, 1, ...], or [..., 1, C], with sample * scale + shift = (sample / unit - mean) / std.

    None for what is not normalised.
    """
    if not dataset.mean:
        return None
    ones = [1] * (len(dataset.shape) - 1)
    shape = (*ones, -1) if dataset.channels == "last" else (-1, *ones)
    mean, std = (torch.tensor(constants, dtype=torch.float64).view(shape) for constants in (dataset.mean, dataset.std))
    return (1 / (dataset.unit * std)).to(device, dtype), (-mean / std).to(device, dtype)


class Split:
    """One client's part of a data set: a gatherer of normalised batches. No public name leads to other rows.

    samples: [rows, ...], one tensor for all splits of a process. rows: int64 [n], where in it the part lies. targets:
    [n, ...], which need not be those of the data set (flipped, or hidden). factors: scale and shift, if samples are
    normalised. key: names the random streams of whoever makes batches of it. All of them on one device, on which
    batches are made; samples that do not fit there may stay on the CPU. augmentation: what `augmented` does to a batch.
    medians: [owners, columns], what stands for missing values by the owner of each sample, int64 [n].
    """

    def __init__(
        self,
        samples: Tensor,
        rows: Tensor,
        targets: Tensor,
        factors: tuple[Tensor, Tensor] | None,
        key: tuple[int | str, ...],
        memory_format: torch.memory_format = torch.contiguous_format,
        dtype: torch.dtype = torch.float32,
        augmentation: Augmentation | None = None,
        owners: Tensor | None = None,
        medians: Tensor | None = None,
    ) -> None:
        self._samples, self._rows, self.targets, self.key = samples, rows, targets, key
        self._owners, self._medians = None if medians is None else owners, medians
        self.augmentation = augmentation
        self.stream: torch.Generator | None = None
        self.factors = factors and (factors[0].to(dtype), factors[1].to(dtype))
        self.memory_format, self.dtype = memory_format, dtype

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Tensor:
        """Where in the data set the part lies, int64 `[n]`."""
        return self._rows

    @property
    def labels(self) -> Tensor:
        """The targets, where they are classes."""
        return self.targets

    def part(self, places: Tensor) -> "Split":
        """The samples at these places (int64 [n])."""
        twin = copy(self)
        twin._rows, twin.targets = (of.index_select(0, places.to(of.device)) for of in (self._rows, self.targets))
        if self._owners is not None:
            twin._owners = self._owners.index_select(0, places.to(self._owners.device))
        return twin

    def with_augmentation(self, stream: torch.Generator) -> "Split":
        """The same part as training sees it: each batch augmented with the next draws of a CPU stream."""
        twin = copy(self)
        twin.stream = stream if self.augmentation else None
        return twin

    def draw(self, count: int) -> Draws:
        """The random numbers for the next batch, of `count` samples."""
        return self.augmentation.draw(count, self.stream) if self.augmentation and self.stream else {}

    def batch(self, index: Tensor, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        """Inputs [b, ...] and targets [b, ...] at these positions (int64 [b]) of the split.

        draws: of `draw`; those of several batches, concatenated, gather them at once.
        """
        rows = self._rows.index_select(0, index)
        x = self._samples.index_select(0, rows.to(self._samples.device)).to(rows.device)
        if self._owners is not None and self._medians is not None:
            x = torch.where(x.isnan(), self._medians[self._owners.index_select(0, index)], x)
        if self.augmentation and (draws := self.draw(len(index)) if draws is None else draws):
            x = self.augmentation(x, draws)
        if self.factors:
            # Normalised before the layout changes: with three channels innermost both operations take eight times as
            # long.
            x = x.to(self.dtype).mul_(self.factors[0]).add_(self.factors[1])
        if x.ndim == 4:
            x = x.contiguous(memory_format=self.memory_format)
        return x, self.targets.index_select(0, index)


def join_splits(splits: Sequence[Any]) -> Split | None:
    """These parts one after another, as one; None if they are no parts of the same samples."""
    first = splits[0]
    alike = lambda s: s._samples is first._samples and s.augmentation is first.augmentation  # noqa: E731
    if not all(type(split) is Split and alike(split) for split in splits):
        return None
    if len(splits) == 1:
        return first
    whole = copy(first)
    whole._rows, whole.targets = (torch.cat([getattr(s, name) for s in splits]) for name in ("_rows", "targets"))
    if first._owners is not None:
        whole._owners = torch.cat([s._owners for s in splits])
    return whole
