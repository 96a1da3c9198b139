"""The engine of several clients in one gradient step: their numbers are the rows of matrices `[K, N]`.

K is the same in every step, whoever takes part, and a client has the same row in all of them, by its number: where a
row lies may decide how its products are summed up. So its bits depend on K and its number, and on nothing in the other
rows. Batches of the run's size are stepped together, each client's next one with those of the others; what is left at
the end of an epoch is stepped alone. With K = 1 every step is one client's, by the operations of the loop.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.group import Group, Kind, kind_of
from fedbench.engine.lane import Asked
from fedbench.engine.row_step import CannotStackError
from fedbench.engine.trainee import Trainee
from fedbench.module.layout import Slot
from fedbench.module.weights import Weights

FAILURES = (Exception, SystemExit)
"""What users' code may raise; a model that calls sys.exit must not end the run."""


class Stack:
    """Fits of several clients at once. alone: trains one that cannot be stacked; remarks: why some were."""

    def __init__(self, learner: Trainee, width: int, alone: Callable[[Asked], Weights]) -> None:
        self.learner, self.width, self._alone = learner, width, alone
        layout, like = learner.layout, learner.w
        self.w, self.g, self.momentum = (like.new_zeros(width, layout.size) for _ in range(3))
        # Tensors of their own: batch normalisation changes no part of a row in place.
        self.buffers, self.counters = (
            [like.new_zeros(width, *slot.shape, dtype=learner.buffer(slot).dtype) for slot in slots]
            for slots in (layout.buffers, layout.counters)
        )
        self.losses = torch.zeros(width, dtype=torch.float64, device=like.device)
        self.refusals: dict[Any, CannotStackError | None] = {}
        self._views: dict[Any, Views] = {}
        self.remarks: dict[str, None] = {}

    def train(self, asked: Sequence[Asked]) -> list[Weights | BaseException]:
        """The trained weights of every fit, or why it has none. No two of them have the same row."""
        found: dict[int, Weights | BaseException] = {}
        groups: dict[Kind, list[int]] = defaultdict(list)
        for place, one in enumerate(asked):
            try:
                groups[kind_of(self.learner, one.fit)].append(place)
            except CannotStackError as error:
                self._remark(error)
                found[place] = self._tried(one)
        for kind, places in groups.items():
            found.update(zip(places, self._stacked(kind, [asked[place] for place in places]), strict=True))
        return [found[place] for place in range(len(asked))]

    def _stacked(self, kind: Kind, asked: Sequence[Asked]) -> list[Weights | BaseException]:
        """Fits of one kind. What becomes of one must not depend on the others: where one fails, each is tried alone."""
        try:
            return [*Group(self, kind, asked).train()]
        except FAILURES as error:
            if len(asked) > 1:
                return [found for one in asked for found in self._stacked(kind, [one])]
            if isinstance(error, CannotStackError):
                self._remark(error)
            return [self._tried(asked[0])]

    def views(self, moving: tuple[bool, ...], row: int | None) -> "Views":
        """Tensors of a row, or of all, by which of them move."""
        key = moving, row
        if key not in self._views:
            layout, cut = self.learner.layout, partial(cut_out, row=row)
            of = lambda whole, moves: [  # noqa: E731
                cut(whole, slot) for slot, own in zip(layout.params, moving, strict=True) if own is moves
            ]
            moves = [tensor.requires_grad_() for tensor in of(self.w, True)]
            buffers = [whole if row is None else whole[row] for whole in (*self.buffers, *self.counters)]
            self._views[key] = Views(moves, of(self.w, False), of(self.g, True), buffers)
        return self._views[key]

    def _remark(self, error: CannotStackError) -> None:
        self.remarks[f"train.engine = stack: fits are done one client after another: {error}"] = None

    def _tried(self, asked: Asked) -> Weights | BaseException:
        try:
            return self._alone(asked)
        except FAILURES as error:
            return error


@dataclass(frozen=True)
class Views:
    """Tensors of one row or of all: parameters that move and that rest, gradients of those that move, buffers."""

    moving: list[Tensor]
    resting: list[Tensor]
    gradients: list[Tensor]
    buffers: list[Tensor]


def cut_out(whole: Tensor, slot: Slot, row: int | None) -> Tensor:
    """One tensor of a row, or of all: `[*shape]` or `[K, *shape]`."""
    part = whole[:, slot.start : slot.stop] if row is None else whole[row, slot.start : slot.stop]
    return part.view((*part.shape[:-1], *slot.shape))
