"""One fit of several: its batches, in their order, and what it logs and costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedbench.engine.engine import Engine, Ledger
from fedbench.engine.fit import Fit, Paired
from fedbench.module.logs import Logs


@dataclass(frozen=True)
class FitRequest:
    """A fit, where its cost is kept, and its row in the stack: the same one for all fits of a client."""

    fit: Fit
    ledger: Ledger
    row: int = 0


@dataclass(frozen=True)
class Batch:
    """A step to come. tensors: inputs and targets, of paired data those of both."""

    index: Tensor
    tensors: Sequence[Tensor]
    ends_epoch: bool


class Cursor:
    """One fit's batches, in their order, and what came of them. next: the batch to come, or None."""

    def __init__(self, engine: Engine, request: FitRequest) -> None:
        self.request, self.row, self.done = request, request.row, 0
        self.logs, self.logged = Logs(), dict[str, float]()
        fit = request.fit
        size = engine.train.batch_size
        self._full = None if size == "full" else int(size)
        self._second_size = fit.data.size if isinstance(fit.data, Paired) else None
        self._plan = engine.plan(fit)
        self._data, self._second = engine.training_data(fit), engine.second_batches(fit)
        self._batches = self._walk()
        self.next = next(self._batches, None)

    @property
    def is_full(self) -> bool:
        """Whether the next batch has the size of the run's batches, like those of other clients."""
        assert self.next is not None
        whole = len(self.next.index) == self._full
        return whole and (self._second_size is None or len(self.next.tensors[2]) == self._second_size)

    def take(self) -> Batch:
        """The next batch, which is done then."""
        batch, self.next = self.next, next(self._batches, None)
        assert batch is not None
        self.done += 1
        return batch

    def log(self, calls: Sequence[tuple[str, dict[str, Any]]], values: Sequence[Tensor], batch: Batch) -> None:
        self.logs.in_step, self.logs.batch_size = True, len(batch.index)
        for (name, options), value in zip(calls, values, strict=True):
            self.logs.log(name, value, **options)
        if batch.ends_epoch:
            self.logs.in_step = False
            self.logged.update(self.logs.end_epoch())

    def _walk(self) -> Iterator[Batch]:
        for epoch in self._plan:
            for place, index in enumerate(epoch):
                tensors: tuple[Tensor, ...] = self._data.batch(index)
                if self._second is not None:
                    tensors = (*tensors, *next(self._second))
                yield Batch(index, tensors, place + 1 == len(epoch))
