"""Fits of one kind: each is a row of every matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedbench.engine.cursor import Cursor, FitRequest
from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit, Loss, Step
from fedbench.engine.kind import Kind
from fedbench.engine.optimizers import clip_gradient, rate_of, rate_tensor
from fedbench.engine.row_step import RowStep, UnsupportedFitError, check_step
from fedbench.engine.rows import Rows, Views, copy_to_rows, pick
from fedbench.module.masks import choose
from fedbench.module.weights import Weights


@dataclass(frozen=True)
class StepTensors:
    """What a gradient step reads and changes in place: of one row, or of all with the rows as first dimension.

    views: of w, g and the buffers; states: of the optimiser; needs: inputs of loss and edit; mask, start: entries that
    move, and values of the others; rate: the learning rate.
    """

    w: Tensor
    g: Tensor
    views: Views
    states: dict[str, Tensor]
    needs: dict[str, Tensor]
    mask: Tensor | None
    start: Tensor | None
    rate: Tensor


class Group(ABC):
    """Fits of one kind, each in its row.

    like: one of them; refusals: why steps cannot be taken, by `step_key` and by kind; None: they can. stacked: whether
    a step is of all rows.
    """

    stacked: ClassVar[bool]

    def __init__(self, engine: Engine, rows: Rows, kind: Kind, like: Fit, refusals: dict[Any, str | None]) -> None:
        self.engine, self.rows, self.kind, self._refusals = engine, rows, kind, refusals
        self.rate = rate_tensor(engine.flat.device)
        self._edit = Step(like.step.edit)
        self.states = rows.states_of(kind.optimizer.states)
        self.needs = {name: rows.zeros(shape, dtype) for name, shape, dtype in (*kind.needs, *kind.edit_needs)}
        self.mask = torch.zeros_like(rows.w, dtype=torch.bool) if kind.masked else None
        self.start = torch.zeros_like(rows.w) if kind.masked else None
        self.written: set[str] = set()
        layout = engine.flat.layout
        slots = sorted(zip(kind.moving, layout.params, strict=True), key=lambda both: not both[0])
        names = [slot.name for slot in (*(slot for _, slot in slots), *layout.buffers, *layout.counters)]
        needs = [*(name for name, *_ in kind.needs), "index"]
        loss = like.loss and Loss(like.loss.function)
        self.step = RowStep(engine.flat.module, loss, names, needs, dict(kind.constants), engine.flat.autocast)

    def begin(self, requests: Sequence[FitRequest]) -> list[Cursor]:
        """Begins these fits, whose rows nobody else uses until they have ended.

        Raises UnsupportedFitError if the steps cannot be taken in rows.
        """
        self.set_rate(rate_of(self.engine, requests[0].fit))
        with self.engine.in_train_mode(requests[0].fit):
            cursors = [Cursor(self.engine, request) for request in requests]
            self._load(cursors)
            self._check(cursors)
            with self.step.active():
                self.run(cursors)
        return cursors

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate of the next steps."""
        self.rate.fill_(rate)

    @abstractmethod
    def run(self, cursors: Sequence[Cursor]) -> None:
        """Takes all steps of all fits; on a GPU they may still be under way."""

    def _check(self, cursors: Sequence[Cursor]) -> None:
        """Tries the step on a first batch, once for all fits of this kind. Raises UnsupportedFitError."""
        key = self.kind.step_key
        if key not in self._refusals:
            batches = ((cursor.row, batch) for cursor in cursors if (batch := cursor.first()) is not None)
            row, batch = next(batches, (0, None))
            if batch is None:
                return
            try:
                check_step(self.step, self.inputs(self.tensors(row), batch.index, batch.tensors), self.stacked)
                self._refusals[key] = None
            except UnsupportedFitError as error:
                self._refusals[key] = str(error)
        # The kind itself is refused where its step could not be compiled or captured. A new error each time, since one
        # keeps the frames that it went through.
        if (refusal := self._refusals[key] or self._refusals.get(self.kind)) is not None:
            raise UnsupportedFitError(refusal)

    def _load(self, cursors: Sequence[Cursor]) -> None:
        rows, fits = [cursor.row for cursor in cursors], [cursor.request.fit for cursor in cursors]
        memories = [(fit.memory or {}).get("optimizer", {}) for fit in fits]
        losses = [cursor.request.ledger.losses for cursor in cursors]
        self.rows.load(rows, [fit.start for fit in fits], losses)
        for name, whole in self.states.items():
            torch._foreach_zero_([whole[row] for row in rows])
            known = [(row, old[name]) for row, old in zip(rows, memories, strict=True) if old.get(name) is not None]
            copy_to_rows(whole, [row for row, _ in known], [value for _, value in known])
        needs = [vars(fit.needs(self.rows.w)) for fit in fits]
        for name, whole in self.needs.items():
            copy_to_rows(whole, rows, [tensors[name] for tensors in needs])
        if self.mask is not None and self.start is not None:
            copy_to_rows(self.mask, rows, [fit.move.mask for fit in fits if fit.move is not None])
            copy_to_rows(self.start, rows, [fit.start.params for fit in fits])

    def tensors(self, row: int | None) -> StepTensors:
        """Those of a row, or of all."""
        rows = self.rows
        states, needs = (
            {name: pick(whole, row) for name, whole in named.items()} for named in (self.states, self.needs)
        )
        mask, start = (None if whole is None else pick(whole, row) for whole in (self.mask, self.start))
        views = rows.views(self.kind.moving, row)
        return StepTensors(pick(rows.w, row), pick(rows.g, row), views, states, needs, mask, start, self.rate)

    def move(self, row: int, index: Tensor, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """A gradient step of one row: adds its loss to those of the row, and returns the module's logs."""
        before = [value._version for value in self.needs.values()]
        loss, logged = self.take_step(self.tensors(row), index, tensors)
        self.rows.losses[row].add_(loss)
        self.written.update(
            name for (name, value), version in zip(self.needs.items(), before, strict=True) if value._version != version
        )
        return logged

    def take_step(
        self, state: StepTensors, index: Tensor, tensors: Sequence[Tensor], shares: Tensor | None = None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """A gradient step on a batch, or one of each row: returns the losses and the module's logs.

        shares: of the samples in the mean loss of a batch, if rows have batches of several sizes.
        """
        stacked = state.w.dim() > 1
        loss, gradients, logged = self.step(self.inputs(state, index, tensors), stacked, shares)
        w, g = state.w, state.g
        with torch.no_grad():
            if state.views.frozen:
                g.zero_()
            torch._foreach_copy_(state.views.gradients, list(gradients))
            if self._edit.edit is not None:
                # Vectors, and numbers as `[]` or `[K, 1]`.
                needs = {n: v.unsqueeze(-1) if stacked and v.dim() == 1 else v for n, v in state.needs.items()}
                self._edit.change(g, w, SimpleNamespace(index=index, **needs, **dict(self.kind.constants)))
            if self.engine.train.clip_norm is not None:
                clip_gradient(g, self.engine.train.clip_norm, state.mask)
            self.update(state)
            if state.mask is not None and state.start is not None:
                w.copy_(torch.where(state.mask, w, state.start))
        return loss, logged

    @abstractmethod
    def update(self, state: StepTensors) -> None:
        """The optimiser's step along the gradients."""

    def inputs(self, state: StepTensors, index: Tensor, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The inputs of a `RowStep`."""
        needs = [state.needs[name] for name, *_ in self.kind.needs]
        return [state.views.moving, [*state.views.frozen, *state.views.buffers], [*tensors], [*needs, index]]

    def end(self, cursors: Sequence[Cursor]) -> list[Weights | BaseException]:
        """The trained weights of fits that `begin` has begun, or their errors; what they have changed is copied back.

        If it raises, nothing has been counted or copied back.
        """
        self._take_logs(cursors)
        rows = [cursor.row for cursor in cursors]
        trained = self.rows.weights(rows)
        # The device is waited for once. Of other rows, whose fits may be under way, the numbers say nothing.
        losses, sums = torch.stack([self.rows.losses, self.rows.w.sum(1).double()]).tolist()
        ledgers = [cursor.request.ledger for cursor in cursors]
        torch._foreach_copy_([ledger.losses for ledger in ledgers], [self.rows.losses[row] for row in rows])
        answers = list[Weights | BaseException]()
        for cursor, weights, ledger in zip(cursors, trained, ledgers, strict=True):
            ledger.take(losses[cursor.row], cursor.done, cursor.logged)
            if isfinite(sums[cursor.row]):
                ledger.note_finite(weights)
            try:
                self._copy_back(cursor)
                answers.append(weights)
            except Exception as error:
                answers.append(error)
        return answers

    def size_of(self, cursor: Cursor, name: str) -> int:
        """The rows of an input of the loss that are the fit's."""
        return len(cursor.request.fit.inputs[name])

    def last_logs(self, cursor: Cursor) -> list[Tensor]:
        """The logs `[L]` of the steps of a fit's last epoch."""
        return cursor.last_logs()

    def _take_logs(self, cursors: Sequence[Cursor]) -> None:
        """What the module has logged in the last epochs, whose values replace those of the epochs before."""
        cursors = [cursor for cursor in cursors if cursor.sizes]
        if not self.step.logs.calls or not cursors:
            return
        rows = [self.last_logs(cursor) for cursor in cursors]
        values = iter(torch.stack([row for row_logs in rows for row in row_logs]).tolist())  # a GPU is waited for once
        for cursor, row in zip(cursors, rows, strict=True):
            cursor.end(self.step.logs.calls, [*islice(values, len(row))])

    def wait(self, cursors: Sequence[Cursor]) -> None:  # noqa: B027
        """Has the device's next work wait for the steps of these fits."""

    def _copy_back(self, cursor: Cursor) -> None:
        row, fit = cursor.row, cursor.request.fit
        given = fit.inputs
        for name in self.written:
            if isinstance(given[name], Tensor):
                value = self.needs[name][row]
                given[name].copy_(value[: len(given[name])] if value.dim() else value)
        if fit.memory is None:
            return
        before, states = fit.memory.get("optimizer", {}), {}
        for name, whole in self.states.items():
            value = states[name] = whole[row].clone()
            if fit.move is not None and value.dim():
                rest = before.get(name)
                rest = torch.zeros_like(value) if rest is None else rest
                states[name] = choose(fit.move.mask.to(value.device), value, rest)
        fit.memory["optimizer"] = states


def as_row(logged: Sequence[Tensor]) -> Tensor:
    """Logged numbers as one vector, in double precision."""
    values = [value.reshape(()).double() for value in logged]
    return torch.stack(values) if values else torch.zeros(0)
