"""The weights of several clients: each is a row of every matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.module.flat import FlatModule
from fedbench.module.layout import Slot
from fedbench.module.weights import Weights


@dataclass(frozen=True)
class Views:
    """Tensors of one row or of all: moving and frozen parameters, gradients of the moving ones, buffers."""

    moving: list[Tensor]
    frozen: list[Tensor]
    gradients: list[Tensor]
    buffers: list[Tensor]


class Rows:
    """Parameters, gradients and momenta `[K, N]`, buffers and counters `[K, *shape]`, sums of losses `[K]`."""

    def __init__(self, flat: FlatModule, count: int) -> None:
        self.layout, self.count, like = flat.layout, count, flat.w
        self.w, self.g, self.momentum = (like.new_zeros(count, self.layout.size) for _ in range(3))
        # Separate tensors: batch normalisation changes no part of a row in place.
        self.buffers, self.counters = (
            [like.new_zeros(count, *slot.shape, dtype=flat.buffer(slot).dtype) for slot in slots]
            for slots in (self.layout.buffers, self.layout.counters)
        )
        self.losses = torch.zeros(count, dtype=torch.float64, device=like.device)
        self._views: dict[tuple[tuple[bool, ...], int | None], Views] = {}

    def load(self, row: int, weights: Weights, momentum: Tensor | None, losses: Tensor) -> None:
        """Sets a row to the start of a fit."""
        self.w[row].copy_(weights.params)
        for whole, part in zip(self.buffers, split_vector(weights.buffers, self.layout.buffers), strict=True):
            whole[row].copy_(part)
        for whole, part in zip(self.counters, split_vector(weights.counters, self.layout.counters), strict=True):
            whole[row].copy_(part)
        self.momentum[row].zero_() if momentum is None else self.momentum[row].copy_(momentum)
        self.losses[row].copy_(losses)

    def weights(self, row: int) -> Weights:
        """A copy of a row's current weights."""
        buffers = [whole[row].flatten().to(self.w.dtype) for whole in self.buffers]
        counters = [whole[row].flatten().to("cpu", torch.int64) for whole in self.counters]
        return Weights(
            params=self.w[row].clone(),
            buffers=torch.cat([self.w.new_zeros(0), *buffers]),
            counters=torch.cat([torch.zeros(0, dtype=torch.int64), *counters]),
        )

    def views(self, moving: tuple[bool, ...], row: int | None) -> Views:
        """Tensors of a row, or of all, split into moving and frozen."""
        key = moving, row
        if key not in self._views:
            parts = [(own, slot) for own, slot in zip(moving, self.layout.params, strict=True)]
            self._views[key] = Views(
                moving=[cut_out(self.w, slot, row).requires_grad_() for own, slot in parts if own],
                frozen=[cut_out(self.w, slot, row) for own, slot in parts if not own],
                gradients=[cut_out(self.g, slot, row) for own, slot in parts if own],
                buffers=[whole if row is None else whole[row] for whole in (*self.buffers, *self.counters)],
            )
        return self._views[key]


def cut_out(whole: Tensor, slot: Slot, row: int | None) -> Tensor:
    """One tensor of a row, or of all: `[*shape]` or `[K, *shape]`."""
    part = whole[:, slot.start : slot.stop] if row is None else whole[row, slot.start : slot.stop]
    return part.view((*part.shape[:-1], *slot.shape))


def split_vector(vector: Tensor, slots: Sequence[Slot]) -> list[Tensor]:
    """The tensors of a flat vector."""
    return [vector[slot.start : slot.stop].view(slot.shape) for slot in slots]
