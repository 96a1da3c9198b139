"""One fit of several: its batches, planned before its steps, so that many are gathered at once; its logs and cost."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from fedbench.data.split import join_splits
from fedbench.engine.engine import Engine, Ledger
from fedbench.engine.fit import Batches, Fit, PairedBatches
from fedbench.module.logs import Logs


@dataclass(frozen=True)
class FitRequest:
    """A fit, its ledger, and its row, which is the same for all fits of a client."""

    fit: Fit
    ledger: Ledger
    row: int = 0


@dataclass(frozen=True)
class Batch:
    """A step's batch. tensors: inputs and targets, of both data sets if they are paired."""

    index: Tensor
    tensors: Sequence[Tensor]


Size = tuple[int, ...]
"""Samples in a batch, of both data sets if they are paired."""


@dataclass(frozen=True)
class BatchPlaces:
    """The places of a step's batch, those of the second data set, and the random numbers of its augmentation."""

    index: Tensor
    second: Tensor | None
    draws: dict[str, Tensor]
    size: Size


class Cursor:
    """A fit in progress.

    data, second: its data sets; sizes: of all steps, in order; waiting: by size, the places of the steps to come;
    logs_of: by size, the logs `[L]` of its steps; done: steps; logged: what the module has logged in the last epoch.
    """

    def __init__(self, engine: Engine, request: FitRequest) -> None:
        self.request, self.row, self.done = request, request.row, 0
        self.logs, self.logged = Logs(), dict[str, float]()
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
            count, second = len(index), next(seconds) if seconds else None
            size = (count,) if second is None else (count, len(second))
            self.sizes.append(size)
            self.waiting[size].append(BatchPlaces(index, second, draw(count) if draw else {}, size))

    @property
    def next_size(self) -> Size | None:
        """The size of the next step's batch; None after the last."""
        return self.sizes[self.done] if self.done < len(self.sizes) else None

    def first(self) -> Batch | None:
        """The first batch; None without steps."""
        return self.look(self.sizes[0]) if self.sizes else None

    def look(self, size: Size) -> Batch:
        """The next batch of a size, which stays the next."""
        batches = gather_batches([(self, [self.waiting[size][0]])])
        return Batch(batches.index[0], [tensor[0] for tensor in batches.tensors])

    def take(self, size: Size, most: int) -> list[BatchPlaces]:
        """The places of the next batches of a size."""
        waiting = self.waiting[size]
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    def last_logs(self) -> list[Tensor]:
        """The logs `[L]` of the steps of the last epoch."""
        rows = {size: iter(logs) for size, logs in self.logs_of.items()}
        return [next(rows[size]) for size in self.sizes][len(self.sizes) - self._last :]

    def end(self, calls: Sequence[tuple[str, dict[str, Any]]], logs: Sequence[Sequence[float]]) -> None:
        """Notes the logs of the steps of the last epoch. calls: the names and options of the values."""
        sizes = self.sizes[len(self.sizes) - self._last :]
        for number, (size, row) in enumerate(zip(sizes, logs, strict=True)):
            self.logs.in_step, self.logs.batch_size = True, size[0]
            for (name, options), value in zip(calls, row, strict=True):
                self.logs.log(name, value, **options)
            if number + 1 == len(sizes):
                self.logs.in_step = False
                self.logged.update(self.logs.end_epoch())


Taken = Sequence[tuple[Cursor, Sequence[BatchPlaces]]]
"""The next steps of several fits."""


def gather_batches(taken: Taken) -> Batch:
    """The batches at places of several fits, all of one size: `[n, b, ...]`, one fit after another."""
    index, tensors = gather_samples(taken)
    (size,) = {place.size for _, places in taken for place in places}
    wide = len(index)
    return Batch(index.view(-1, size[0]), [part.unflatten(0, (-1, size[len(part) != wide])) for part in tensors])


def gather_samples(taken: Taken) -> tuple[Tensor, list[Tensor]]:
    """The samples at places of several fits, one after another: their places `[n]`, and their tensors `[n, ...]`.

    Of paired data the tensors of the second follow, `[m, ...]`.
    """
    cursors, device = [cursor for cursor, _ in taken], taken[0][0].device
    places = [place for _, taken_places in taken for place in taken_places]
    draws = {name: torch.cat([place.draws[name] for place in places]) for name in places[0].draws}
    firsts = [[place.index for place in taken_places] for _, taken_places in taken]
    index, tensors = _gather([cursor.data for cursor in cursors], firsts, draws, device)
    seconds = [[place.second for place in taken_places if place.second is not None] for _, taken_places in taken]
    if any(seconds):
        sets = [cursor.second for cursor in cursors if cursor.second is not None]
        tensors += _gather(sets, seconds, {}, device)[1]
    return index, tensors


def _gather(
    sets: Sequence[Batches], places: Sequence[Sequence[Tensor]], draws: dict[str, Tensor], device: torch.device
) -> tuple[Tensor, list[Tensor]]:
    """Batches of each data set, one after another: their places in it `[n]`, and their tensors `[n, ...]`."""
    index = torch.cat([place for batches in places for place in batches])
    counts = [sum(map(len, batches)) for batches in places]
    whole = join_splits(sets)
    if whole is not None:
        starts = torch.tensor([0, *accumulate(len(data) for data in sets[:-1])]).repeat_interleave(torch.tensor(counts))
        index, sent = torch.stack([index, index + starts]).to(device).unbind()
        return index, list(whole.batch(sent, draws))
    index, parts = index.to(device), []
    own_draws = {name: drawn.split(counts) for name, drawn in draws.items()}
    for number, (data, indices) in enumerate(zip(sets, index.split(counts), strict=True)):
        drawn = {name: values[number] for name, values in own_draws.items()}
        parts.append(data.batch(indices, drawn) if drawn else data.batch(indices))  # type: ignore[call-arg]
    return index, [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
