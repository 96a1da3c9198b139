"""The weights of several clients: each is a row of every matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedbench.module.flat import FlatModule, concatenate
from fedbench.module.layout import Layout
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
    """Parameters and gradients `[K, N]`, buffers and counters `[K, *shape]`, sums of losses `[K]`.

    states: of optimisers, by torch.optim's names, `[K, N]`, or `[K]` if scalar; aligned: each row begins like a tensor
    of its own, so that it gives the bits of one.
    """

    def __init__(self, flat: FlatModule, count: int, aligned: bool) -> None:
        self.layout, self.count, self.aligned, self.device = flat.layout, count, aligned, flat.device
        size = (self.layout.size,)
        self.w, self.g = (self.zeros(size, flat.dtype) for _ in range(2))
        self.states: dict[str, Tensor] = {}
        # Separate tensors: batch normalisation changes no part of a row in place.
        self.buffers, self.counters = (
            [self.zeros(slot.shape, flat.buffer(slot).dtype) for slot in slots]
            for slots in (self.layout.buffers, self.layout.counters)
        )
        self.losses = torch.zeros(count, dtype=torch.float64, device=self.device)
        self._views: dict[tuple[tuple[bool, ...], int | None], Views] = {}

    def states_of(self, names: Mapping[str, bool]) -> dict[str, Tensor]:
        """These states, which are made when they are asked for first. names: and whether each is a vector."""
        for name, vector in names.items():
            if name not in self.states:
                whole = self.zeros(self.w.shape[1:], self.w.dtype) if vector else self.zeros((), torch.float32)
                self.states[name] = whole
        return {name: self.states[name] for name in names}

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
        losses: Sequence[Tensor],
    ) -> None:
        """Sets rows to the starts of their fits."""
        copy_to_rows(self.w, rows, [model.params for model in weights])
        copy_to_rows(self.losses, rows, losses)
        for wholes, vectors, slots in (
            (self.buffers, [model.buffers for model in weights], self.layout.buffers),
            (self.counters, [model.counters for model in weights], self.layout.counters),
        ):
            vectors = [vector.to(self.device) for vector in vectors]
            for whole, slot in zip(wholes, slots, strict=True):
                copy_to_rows(whole, rows, [slot.view(vector) for vector in vectors])

    def weights(self, rows: Sequence[int]) -> list[Weights]:
        """Copies of the current weights of rows."""
        params = [torch.empty_like(self.w[row]) for row in rows]
        torch._foreach_copy_(params, [self.w[row] for row in rows])
        return [Weights(vector, *self._buffers_and_counters(row)) for vector, row in zip(params, rows, strict=True)]

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
            buffers = [pick(whole, row) for whole in (*self.buffers, *self.counters)]
            self._views[key] = views_of(self.layout, moving, pick(self.w, row), pick(self.g, row), buffers)
        return self._views[key]


def views_of(layout: Layout, moving: Sequence[bool], w: Tensor, g: Tensor, buffers: list[Tensor]) -> Views:
    """The tensors of parameters w `[..., N]` and of their gradients g."""
    parts = [(moves, slot) for moves, slot in zip(moving, layout.params, strict=True)]
    return Views(
        moving=[slot.view(w).requires_grad_() for moves, slot in parts if moves],
        frozen=[slot.view(w) for moves, slot in parts if not moves],
        gradients=[slot.view(g) for moves, slot in parts if moves],
        buffers=buffers,
    )


def pick(whole: Tensor, row: int | None) -> Tensor:
    """A row, or all of them."""
    return whole if row is None else whole[row]


def over_rows(values: Tensor, like: Tensor) -> Tensor:
    """Values `[K]` in a shape that fits `like`, `[K, ...]`; one value `[]` fits anyway."""
    return values.view(-1, *[1] * (like.dim() - 1)) if values.dim() else values


def copy_to_rows(whole: Tensor, rows: Sequence[int], tensors: Sequence[Tensor]) -> None:
    """Copies a tensor into each of these rows, all in one call; a shorter one to the row's beginning."""
    if rows:
        places = [whole[row] for row in rows]
        parts = [row[: len(tensor)] if row.dim() else row for row, tensor in zip(places, tensors, strict=True)]
        torch._foreach_copy_(parts, list(tensors))
