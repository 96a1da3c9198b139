"""One fit of several: its batches in order, its logs and its cost."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedbench.engine.engine import Engine, Ledger
from fedbench.engine.fit import Fit, PairedBatches
from fedbench.module.logs import Logs


@dataclass(frozen=True)
class FitRequest:
    """A fit, its ledger, and its row in the stack, which is the same for all fits of a client."""

    fit: Fit
    ledger: Ledger
    row: int = 0


@dataclass(frozen=True)
class Batch:
    """The next step. tensors: inputs and targets, of both data sets if they are paired."""

    index: Tensor
    tensors: Sequence[Tensor]
    ends_epoch: bool


class Cursor(ABC):
    """A fit in progress. done: steps; logged: what the module has logged."""

    def __init__(self, request: FitRequest) -> None:
        self.request, self.row, self.done = request, request.row, 0
        self.logs, self.logged = Logs(), dict[str, float]()

    @abstractmethod
    def first(self) -> Batch | None:
        """The first batch, before any is taken; None without steps."""

    def log(
        self, calls: Sequence[tuple[str, dict[str, Any]]], values: Sequence[Tensor], size: int, ends_epoch: bool
    ) -> None:
        """Notes what the module has logged in the step on a batch of `size` samples."""
        self.logs.in_step, self.logs.batch_size = True, size
        for (name, options), value in zip(calls, values, strict=True):
            self.logs.log(name, value, **options)
        if ends_epoch:
            self.logs.in_step = False
            self.logged.update(self.logs.end_epoch())


class BatchCursor(Cursor):
    """Gathers the batches of a fit one by one, in order. next: the next batch, or None."""

    def __init__(self, engine: Engine, request: FitRequest) -> None:
        super().__init__(request)
        fit = request.fit
        self._full = engine.train.batch_size
        self._second_size = fit.data.size if isinstance(fit.data, PairedBatches) else None
        self._plan = engine.plan_to_run(fit)
        self._data, self._second = engine.training_data(fit), engine.second_batches(fit)
        self._batches = self._walk()
        self.next = next(self._batches, None)

    def first(self) -> Batch | None:
        return self.next

    @property
    def is_full(self) -> bool:
        """Whether the next batch has the run's batch size, as those of other clients."""
        assert self.next is not None
        whole = len(self.next.index) == self._full
        return whole and (self._second_size is None or len(self.next.tensors[2]) == self._second_size)

    def take(self) -> Batch:
        """Returns the next batch and marks it as done."""
        batch, self.next = self.next, next(self._batches, None)
        assert batch is not None
        self.done += 1
        return batch

    def _walk(self) -> Iterator[Batch]:
        for epoch in self._plan:
            for place, index in enumerate(epoch):
                tensors: tuple[Tensor, ...] = self._data.batch(index)
                if self._second is not None:
                    tensors = (*tensors, *next(self._second))
                yield Batch(index, tensors, place + 1 == len(epoch))
