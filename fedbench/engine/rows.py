"""The weights of several clients: each is a row of every matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedbench.module.flat import FlatModule, concatenate
from fedbench.module.weights import Weights


@dataclass(frozen=True)
class Views:
    """Tensors of one row or of all: moving and frozen parameters, gradients of the moving ones, buffers."""

    moving: list[Tensor]
    frozen: list[Tensor]
    gradients: list[Tensor]
    buffers: list[Tensor]


ALIGNMENT = 512
"""Bytes to whose multiples memory is allocated; a row's place in memory decides how its products are summed."""


class Rows:
    """Parameters, gradients and momenta `[K, N]`, buffers and counters `[K, *shape]`, sums of losses `[K]`.

    aligned: each row begins like a tensor of its own, so that it gives the bits of one.
    """

    def __init__(self, flat: FlatModule, count: int, aligned: bool) -> None:
        self.layout, self.count, self.aligned, self.device = flat.layout, count, aligned, flat.device
        self.w, self.g, self.momentum = (self.zeros((self.layout.size,), flat.dtype) for _ in range(3))
        # Separate tensors: batch normalisation changes no part of a row in place.
        self.buffers, self.counters = (
            [self.zeros(slot.shape, flat.buffer(slot).dtype) for slot in slots]
            for slots in (self.layout.buffers, self.layout.counters)
        )
        self.losses = torch.zeros(count, dtype=torch.float64, device=self.device)
        self._views: dict[tuple[tuple[bool, ...], int | None], Views] = {}

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A new tensor `[K, *shape]`."""
        size = prod(shape)
        room = -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT // dtype.itemsize if self.aligned else size
        whole = torch.zeros(self.count, room, dtype=dtype, device=self.device)
        return whole[:, :size].unflatten(1, shape) if shape else whole[:, 0]

    def load(
        self,
        rows: Sequence[int],
        weights: Sequence[Weights],
        momenta: Sequence[Tensor | None],
        losses: Sequence[Tensor],
    ) -> None:
        """Sets rows to the starts of their fits."""
        copy_to_rows(self.w, rows, [own.params for own in weights])
        copy_to_rows(self.losses, rows, losses)
        for wholes, vectors, slots in (
            (self.buffers, [own.buffers for own in weights], self.layout.buffers),
            (self.counters, [own.counters for own in weights], self.layout.counters),
        ):
            vectors = [vector.to(self.device) for vector in vectors]
            for whole, slot in zip(wholes, slots, strict=True):
                copy_to_rows(whole, rows, [slot.view(vector) for vector in vectors])
        known = [(row, momentum) for row, momentum in zip(rows, momenta, strict=True) if momentum is not None]
        torch._foreach_zero_([self.momentum[row] for row in rows])
        copy_to_rows(self.momentum, [row for row, _ in known], [momentum for _, momentum in known])

    def weights(self, rows: Sequence[int]) -> list[Weights]:
        """Copies of the current weights of rows."""
        params = [torch.empty_like(self.w[row]) for row in rows]
        torch._foreach_copy_(params, [self.w[row] for row in rows])
        return [Weights(own, *self._buffers_and_counters(row)) for own, row in zip(params, rows, strict=True)]

    def _buffers_and_counters(self, row: int) -> tuple[Tensor, Tensor]:
        """Copies of a row's buffers and counters."""
        return (
            concatenate([whole[row] for whole in self.buffers], self.w.dtype, self.device),
            concatenate([whole[row] for whole in self.counters], torch.int64, torch.device("cpu")),
        )

    def views(self, moving: tuple[bool, ...], row: int | None) -> Views:
        """Tensors of a row, or of all, split into moving and frozen."""
        key = moving, row
        if key not in self._views:
            parts = [(own, slot) for own, slot in zip(moving, self.layout.params, strict=True)]
            w, g = pick(self.w, row), pick(self.g, row)
            self._views[key] = Views(
                moving=[slot.view(w).requires_grad_() for own, slot in parts if own],
                frozen=[slot.view(w) for own, slot in parts if not own],
                gradients=[slot.view(g) for own, slot in parts if own],
                buffers=[pick(whole, row) for whole in (*self.buffers, *self.counters)],
            )
        return self._views[key]


def pick(whole: Tensor, row: int | None) -> Tensor:
    """A row, or all of them."""
    return whole if row is None else whole[row]


def copy_to_rows(whole: Tensor, rows: Sequence[int], tensors: Sequence[Tensor]) -> None:
    """Copies a tensor into each of these rows, all in one call."""
    if rows:
        torch._foreach_copy_([whole[row] for row in rows], list(tensors))
