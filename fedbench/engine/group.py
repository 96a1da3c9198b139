"""Fits of one kind: each is a row of every matrix."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedbench.engine.cursor import Cursor, FitRequest
from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit, Loss, PairedBatches, Step
from fedbench.engine.module_optimizer import own_optimizer
from fedbench.engine.optimizers import clip_gradient, rate_of, rate_tensor
from fedbench.engine.row_optimizers import RowOptimizer
from fedbench.engine.row_step import RowStep, UnsupportedFitError, check_step
from fedbench.engine.rows import Rows, Views, copy_to_rows, pick
from fedbench.module.layout import Slot, slots_with_one
from fedbench.module.masks import choose
from fedbench.module.weights import Weights
from fedbench.tasks import Task

Need = tuple[str, tuple[int, ...], torch.dtype]
LEAST_ROOM = 32
"""Rows that an input of a loss with a row for every sample has at least."""
CONSTANT_TYPES = (str, bool, int, float, type(None), FunctionType, Task)
AFTER = "_post_accumulate_grad_hooks"


@dataclass(frozen=True)
class Kind:
    """Common properties of fits stepped together, batches aside.

    widened: inputs of the loss with a row for every sample or step, with room for more than this client has.

    paired: samples in a batch of the second data set, 0 without one.
    needs, edit_needs: names and shapes of the inputs of the loss, and of further inputs of the edit.
    """

    function: Any
    constants: tuple[tuple[str, Any], ...]
    needs: tuple[Need, ...]
    edit_needs: tuple[Need, ...]
    moving: tuple[bool, ...]
    masked: bool
    frozen: str
    single_sample: bool
    paired: int
    edit: Any
    optimizer: RowOptimizer
    widened: tuple[str, ...]
    rate: float

    @property
    def step_key(self) -> tuple[Any, ...]:
        """The properties that determine the code of a step."""
        return self.function, self.constants, self.needs, self.moving, self.frozen, self.single_sample, self.paired


def engine_refusal(engine: Engine) -> str | None:
    """Why no fit of this engine can be done in rows, if so."""
    assert engine.hooks is not None
    is_full = engine.train.batch_size == "full"
    return _first_reason(
        {
            f"train.accumulate = {engine.train.accumulate}": engine.train.accumulate > 1,
            "train.batch_size = full: batches of several clients have no size in common": is_full,
            f"the model overrides {', '.join(engine.hooks.calls)}": bool(engine.hooks.calls),
            "the model has hooks on gradients": has_gradient_hooks(engine.flat.module),
        }
    )


def fit_kind(engine: Any, fit: Fit) -> Kind:
    """Raises UnsupportedFitError for a fit that cannot be done in rows. engine: a `RowEngine`."""
    optimizer = RowOptimizer.of(engine, fit) if fit.step.rule is None or engine.takes_rules else None
    refusal = _first_reason(
        {
            "the model's own optimiser makes the steps": own_optimizer(engine, fit),
            "the method sets the optimiser": optimizer is None
            or (fit.step.rule is not None and not engine.takes_rules),
            "the method steps parts of the model by settings of their own": bool(fit.step.parts),
            f"train.optimizer = {engine.optimizer}": engine.optimizer not in engine.optimizers,
        }
    )
    if refusal is not None or optimizer is None:
        raise UnsupportedFitError(refusal or "")
    needs = vars(fit.needs(engine.flat.w))
    tensors = {name: value for name, value in needs.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in needs.items() if name not in tensors}
    for name, value in constants.items():
        if not is_constant(value):
            raise UnsupportedFitError(f"a loss or an edit of the method needs {name}, which is not a tensor")
    mask = None if fit.move is None else fit.move.mask
    loss_needs = fit.loss.needs if fit.loss else {}
    if engine.widens:
        _refuse_places(engine, tensors.keys() - loss_needs.keys(), tensors)
    widened = per_sample(engine, fit, {name: tensors[name] for name in loss_needs if name in tensors})
    shapes = [(name, widened.get(name) or tuple(value.shape), value.dtype) for name, value in sorted(tensors.items())]
    return Kind(
        function=fit.loss and identity_of(fit.loss.function, "loss"),
        constants=tuple(sorted(constants.items())),
        needs=tuple(need for need in shapes if need[0] in loss_needs),
        edit_needs=tuple(need for need in shapes if need[0] not in loss_needs),
        moving=slots_with_one(mask, engine.flat.layout.params),
        masked=mask is not None,
        frozen="train" if fit.move is None else fit.move.frozen,
        single_sample=fit.has_single_sample,
        paired=fit.data.size if isinstance(fit.data, PairedBatches) else 0,
        edit=fit.step.edit and identity_of(fit.step.edit, "edit"),
        optimizer=optimizer,
        widened=tuple(sorted(widened)),
        rate=rate_of(engine, fit),
    )


def per_sample(engine: Any, fit: Fit, tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The inputs of a loss with a row for every sample or step of a client, in a shape that others have too.

    A power of two, so that it depends on the client alone.
    """
    if not engine.widens:
        return {}
    samples = len(fit.data)
    steps = fit.amount.steps_on(samples, engine.train)
    counts = {samples, steps, steps * int(engine.train.batch_size)} - {0, 1}
    return {
        name: (max(LEAST_ROOM, 1 << (len(value) - 1).bit_length()), *value.shape[1:])
        for name, value in tensors.items()
        if value.dim() and len(value) in counts
    }


def _refuse_places(engine: Any, names: Set[str], tensors: Mapping[str, Tensor]) -> None:
    """Raises UnsupportedFitError for inputs of an edit whose size is that of no vector, and so a client's own."""
    size = engine.flat.layout.size
    misfits = [name for name in sorted(names) if tuple(tensors[name].shape) not in ((), (size,))]
    if misfits:
        raise UnsupportedFitError(f"an edit of the method needs {misfits[0]}, whose size is a client's own")


def _first_reason(reasons: dict[str, bool]) -> str | None:
    return next((reason for reason, holds in reasons.items() if holds), None)


def has_gradient_hooks(module: nn.Module) -> bool:
    """Whether hooks are called in the backward pass, which tensors of rows do not support."""
    hooks = [getattr(m, name) for m in module.modules() for name in ("_backward_hooks", "_backward_pre_hooks")]
    tensors = [getattr(p, name) for p in module.parameters() for name in ("_backward_hooks", AFTER)]
    return any(hooks) or any(tensors)


def identity_of(function: Any, what: str) -> Any:
    """A key, equal for the same loss or edit of another fit. Raises UnsupportedFitError if it contains tensors."""
    if isinstance(function, partial):
        parts = (function.func, *function.args, *(part for pair in sorted(function.keywords.items()) for part in pair))
        return tuple(identity_of(part, what) for part in parts)
    if is_constant(function):
        return function
    raise UnsupportedFitError(f"the {what} of the method refers to more than constants")


def is_constant(value: Any) -> bool:
    """Whether equal values mean the same for all clients: they contain no client's tensors."""
    if isinstance(value, tuple):
        return all(isinstance(item, Slot) or is_constant(item) for item in value)
    return isinstance(value, CONSTANT_TYPES) and not getattr(value, "__closure__", None)


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

    like: one of them; refusals: why steps cannot be taken, by kind; None: they can. stacked: whether a step is of all
    rows.
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
        if (refusal := self._refusals[key]) is not None:
            raise UnsupportedFitError(refusal)  # a new one each time, since an error keeps the frames it went through

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
