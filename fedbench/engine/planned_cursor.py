"""A fit whose batches are planned before its steps, so that many are gathered at once, also of several fits."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from fedbench.data.split import join_splits
from fedbench.engine.cursor import Batch, Cursor, FitRequest
from fedbench.engine.engine import Engine
from fedbench.engine.fit import Batches, PairedBatches

Size = tuple[int, ...]
"""Samples in a batch, of both data sets if they are paired."""


@dataclass(frozen=True)
class BatchPlaces:
    """The places of a step's batch, those of the second data set, and the random numbers of its augmentation."""

    index: Tensor
    second: Tensor | None
    draws: dict[str, Tensor]

    @property
    def size(self) -> Size:
        return (len(self.index),) if self.second is None else (len(self.index), len(self.second))


class PlannedCursor(Cursor):
    """The batches of a fit by size.

    data, second: its data sets; sizes: of all steps, in order; waiting: by size, the places of the steps to come;
    logs_of: by size, the logs `[L]` of its steps.
    """

    def __init__(self, engine: Engine, request: FitRequest) -> None:
        super().__init__(request)
        # On the CPU: many places are sent at once.
        self.device, cpu = engine.flat.device, torch.device("cpu")
        plan, data = engine.plan_to_run(request.fit, cpu), request.fit.data
        self.data, self.second = (
            engine.training_data(request.fit),
            data.second if isinstance(data, PairedBatches) else None,
        )
        draw, seconds = getattr(self.data, "draw", None), engine.second_places(request.fit, cpu)
        self._last = len(plan[-1]) if plan else 0
        self.sizes: list[Size] = []
        self.logs_of: dict[Size, list[Tensor]] = defaultdict(list)
        self.waiting: dict[Size, deque[BatchPlaces]] = defaultdict(deque)
        for index in chain.from_iterable(plan):
            places = BatchPlaces(index, next(seconds) if seconds else None, draw(len(index)) if draw else {})
            self.sizes.append(places.size)
            self.waiting[places.size].append(places)

    def first(self) -> Batch | None:
        return self.look(self.sizes[0]) if self.sizes else None

    def look(self, size: Size) -> Batch:
        """The next batch of a size, which stays the next."""
        batches = gather_batches([(self, [self.waiting[size][0]])])
        return Batch(batches.index[0], [tensor[0] for tensor in batches.tensors], ends_epoch=False)

    def take(self, size: Size, most: int) -> list[BatchPlaces]:
        """The places of the next batches of a size."""
        waiting = self.waiting[size]
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    def last_logs(self) -> list[Tensor]:
        """The logs `[L]` of the steps of the last epoch."""
        rows = {size: iter(found) for size, found in self.logs_of.items()}
        return [next(rows[size]) for size in self.sizes][len(self.sizes) - self._last :]

    def end(self, calls: Sequence[tuple[str, dict[str, Any]]], logs: Tensor) -> None:
        """Notes the logs `[steps, L]` of the last epoch. calls: the names and options of the values."""
        sizes = self.sizes[len(self.sizes) - self._last :]
        for place, (size, row) in enumerate(zip(sizes, logs, strict=True)):
            self.log(calls, row.unbind(0), size[0], ends_epoch=place + 1 == len(sizes))


def gather_batches(taken: Sequence[tuple[PlannedCursor, Sequence[BatchPlaces]]]) -> Batch:
    """The batches at places of several fits, all of one size: `[n, b, ...]`, one fit after another."""
    cursors, device = [cursor for cursor, _ in taken], taken[0][0].device
    counts, places = [len(own) for _, own in taken], [place for _, own in taken for place in own]
    draws = {name: torch.cat([place.draws[name] for place in places]) for name in places[0].draws}
    firsts = [place.index for place in places]
    index, tensors = _gather([cursor.data for cursor in cursors], counts, firsts, draws, device)
    seconds = [place.second for place in places if place.second is not None]
    if seconds:
        sets = [cursor.second for cursor in cursors if cursor.second is not None]
        tensors += _gather(sets, counts, seconds, {}, device)[1]
    return Batch(index, tensors, ends_epoch=False)


def _gather(
    sets: Sequence[Batches],
    counts: Sequence[int],
    places: Sequence[Tensor],
    draws: dict[str, Tensor],
    device: torch.device,
) -> tuple[Tensor, list[Tensor]]:
    """So many batches of each data set: their places in it `[n, b]`, and their tensors `[n, b, ...]`."""
    index = torch.stack([*places])
    whole = join_splits(sets)
    if whole is not None:
        starts = torch.tensor([0, *accumulate(len(data) for data in sets[:-1])]).repeat_interleave(torch.tensor(counts))
        index, sent = torch.stack([index, index + starts[:, None]]).to(device).unbind()
        found: tuple[Tensor, ...] = whole.batch(sent.flatten(), draws)
    else:
        index = index.to(device)
        own_draws = {name: drawn.split([n * index.shape[1] for n in counts]) for name, drawn in draws.items()}
        parts = []
        for number, (data, own) in enumerate(zip(sets, index.split(list(counts)), strict=True)):
            drawn = {name: values[number] for name, values in own_draws.items()}
            parts.append(data.batch(own.flatten(), drawn) if drawn else data.batch(own.flatten()))  # type: ignore[call-arg]
        found = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return index, [tensor.unflatten(0, index.shape) for tensor in found]
