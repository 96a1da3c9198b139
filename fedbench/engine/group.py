"""Fits of one kind: each is a row of every matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from fedbench.engine.cursor import Cursor, FitRequest
from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit, Loss, PairedBatches, Step
from fedbench.engine.module_optimizer import own_optimizer
from fedbench.engine.optimizers import clip_gradient, rate_of, step_sgd
from fedbench.engine.row_step import RowStep, UnsupportedFitError, check_step
from fedbench.engine.rows import Rows, copy_to_rows, pick
from fedbench.module.layout import Slot, slots_with_one
from fedbench.module.masks import choose
from fedbench.module.weights import Weights

C = TypeVar("C", bound=Cursor)

Need = tuple[str, tuple[int, ...], torch.dtype]
CONSTANT_TYPES = (str, bool, int, float, type(None), FunctionType)
AFTER = "_post_accumulate_grad_hooks"
MOMENTUM = "momentum_buffer"
"""torch.optim's name of it."""


@dataclass(frozen=True)
class Kind:
    """Common properties of fits stepped together, batches aside.

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
    paired: bool
    edit: Any
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


def fit_kind(engine: Engine, fit: Fit) -> Kind:
    """Raises UnsupportedFitError for a fit that cannot be done in rows."""
    refusal = _first_reason(
        {
            "the model's own optimiser makes the steps": own_optimizer(engine, fit),
            "the method sets the optimiser": fit.step.rule is not None,
            "the method steps parts of the model by settings of their own": bool(fit.step.parts),
            f"train.optimizer = {engine.optimizer}": engine.optimizer != "sgd",
        }
    )
    if refusal is not None:
        raise UnsupportedFitError(refusal)
    needs = vars(fit.needs(engine.flat.w))
    tensors = {name: value for name, value in needs.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in needs.items() if name not in tensors}
    for name, value in constants.items():
        if not is_constant(value):
            raise UnsupportedFitError(f"a loss or an edit of the method needs {name}, which is not a tensor")
    mask = None if fit.move is None else fit.move.mask
    shapes = [(name, tuple(value.shape), value.dtype) for name, value in sorted(tensors.items())]
    own = fit.loss.needs if fit.loss else {}
    return Kind(
        function=fit.loss and identity_of(fit.loss.function, "loss"),
        constants=tuple(sorted(constants.items())),
        needs=tuple(need for need in shapes if need[0] in own),
        edit_needs=tuple(need for need in shapes if need[0] not in own),
        moving=slots_with_one(mask, engine.flat.layout.params),
        masked=mask is not None,
        frozen="train" if fit.move is None else fit.move.frozen,
        single_sample=fit.has_single_sample,
        paired=isinstance(fit.data, PairedBatches),
        edit=fit.step.edit and identity_of(fit.step.edit, "edit"),
        rate=rate_of(engine, fit),
    )


def _first_reason(reasons: dict[str, bool]) -> str | None:
    return next((reason for reason, holds in reasons.items() if holds), None)


def has_gradient_hooks(module: nn.Module) -> bool:
    """Whether hooks are called in the backward pass, which tensors of rows do not support."""
    own = [getattr(m, name) for m in module.modules() for name in ("_backward_hooks", "_backward_pre_hooks")]
    tensors = [getattr(p, name) for p in module.parameters() for name in ("_backward_hooks", AFTER)]
    return any(own) or any(tensors)


def identity_of(function: Any, what: str) -> Any:
    """A key, equal for the same loss or edit of another fit. Raises UnsupportedFitError if it contains tensors."""
    if isinstance(function, partial):
        given = (*function.args, *function.keywords.items())
        if is_constant((function.func, *given)):
            return function.func, given
    elif is_constant(function):
        return function
    raise UnsupportedFitError(f"the {what} of the method refers to more than constants")


def is_constant(value: Any) -> bool:
    """Whether equal values mean the same for all clients: they contain no client's tensors."""
    if isinstance(value, tuple):
        return all(isinstance(item, Slot) or is_constant(item) for item in value)
    return isinstance(value, CONSTANT_TYPES) and not getattr(value, "__closure__", None)


class Group(ABC, Generic[C]):
    """Fits of one kind, each in its row.

    like: one of them; refusals: why steps cannot be taken, by kind; None: they can. stacked: whether a step is of all
    rows.
    """

    stacked: ClassVar[bool]

    def __init__(self, engine: Engine, rows: Rows, kind: Kind, like: Fit, refusals: dict[Any, str | None]) -> None:
        self.engine, self.rows, self.kind, self._refusals = engine, rows, kind, refusals
        self.rate: float | Tensor = kind.rate
        self._edit = Step(like.step.edit)
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

    def begin(self, requests: Sequence[FitRequest]) -> list[C]:
        """Begins these fits, whose rows nobody else uses until they have ended.

        Raises UnsupportedFitError if the steps cannot be taken in rows.
        """
        self.set_rate(rate_of(self.engine, requests[0].fit))
        with self.engine.in_train_mode(requests[0].fit):
            cursors = [self.cursor(request) for request in requests]
            self._load(cursors)
            self._check(cursors)
            with self.step.active():
                self.run(cursors)
        return cursors

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate of the next steps."""
        self.rate = rate

    @abstractmethod
    def cursor(self, request: FitRequest) -> C:
        """The fit of a request, at its start."""

    @abstractmethod
    def run(self, cursors: Sequence[C]) -> None:
        """Takes all steps of all fits; on a GPU they may still be under way."""

    def _check(self, cursors: Sequence[C]) -> None:
        """Tries the step on a first batch, once for all fits of this kind. Raises UnsupportedFitError."""
        key = self.kind.step_key
        if key not in self._refusals:
            found = ((cursor.row, batch) for cursor in cursors if (batch := cursor.first()) is not None)
            row, batch = next(found, (0, None))
            if batch is None:
                return
            try:
                check_step(self.step, self._inputs(row, batch.index, batch.tensors), self.stacked)
                self._refusals[key] = None
            except UnsupportedFitError as error:
                self._refusals[key] = str(error)
        if (refusal := self._refusals[key]) is not None:
            raise UnsupportedFitError(refusal)  # a new one each time, since an error keeps the frames it went through

    def _load(self, cursors: Sequence[C]) -> None:
        rows, fits = [cursor.row for cursor in cursors], [cursor.request.fit for cursor in cursors]
        momenta = [(fit.memory or {}).get("optimizer", {}).get(MOMENTUM) for fit in fits]
        self.rows.load(rows, [fit.start for fit in fits], momenta, [cursor.request.ledger.losses for cursor in cursors])
        needs = [vars(fit.needs(self.rows.w)) for fit in fits]
        for name, whole in self.needs.items():
            copy_to_rows(whole, rows, [own[name] for own in needs])
        if self.mask is not None and self.start is not None:
            copy_to_rows(self.mask, rows, [fit.move.mask for fit in fits if fit.move is not None])
            copy_to_rows(self.start, rows, [fit.start.params for fit in fits])

    def move(self, row: int | None, index: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """A gradient step of one row or of all: returns the loss and the module's logs."""
        views, train, edit = self.rows.views(self.kind.moving, row), self.engine.train, self._edit
        before = [value._version for value in self.needs.values()]
        loss, gradients, logged = self.step(self._inputs(row, index, tensors), stacked=row is None)
        w, g = pick(self.rows.w, row), pick(self.rows.g, row)
        with torch.no_grad():
            if views.frozen:
                g.zero_()
            torch._foreach_copy_(views.gradients, list(gradients))
            if edit.edit is not None:
                edit.change(g, w, SimpleNamespace(index=index, **self._edit_needs(row), **dict(self.kind.constants)))
            if train.clip_norm is not None:
                clip_gradient(g, train.clip_norm, None if self.mask is None else pick(self.mask, row))
            buffers: list[Tensor | None] = [pick(self.rows.momentum, row)] if train.momentum else []
            step_sgd([w], [g], buffers, lr=self.rate, momentum=train.momentum, weight_decay=train.weight_decay)
            if self.mask is not None and self.start is not None:
                torch.where(pick(self.mask, row), w, pick(self.start, row), out=w)
        self.written.update(
            name for (name, value), version in zip(self.needs.items(), before, strict=True) if value._version != version
        )
        return loss, logged

    def _inputs(self, row: int | None, index: Tensor, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        views = self.rows.views(self.kind.moving, row)
        needs = [pick(self.needs[name], row) for name, *_ in self.kind.needs]
        return [views.moving, [*views.frozen, *views.buffers], [*tensors], [*needs, index]]

    def _edit_needs(self, row: int | None) -> dict[str, Tensor]:
        """Inputs of an edit: vectors, and numbers as `[]` or `[K, 1]`."""
        if row is not None:
            return {name: value[row] for name, value in self.needs.items()}
        return {name: value.unsqueeze(-1) if value.dim() == 1 else value for name, value in self.needs.items()}

    def end(self, cursors: Sequence[C]) -> list[Weights | BaseException]:
        """The trained weights of fits that `begin` has begun, or their errors; what they have changed is copied back.

        If it raises, nothing has been counted or copied back.
        """
        rows = [cursor.row for cursor in cursors]
        found = self.rows.weights(rows)
        # The device is waited for once. Of other rows, whose fits may be under way, the numbers say nothing.
        losses, sums = torch.stack([self.rows.losses, self.rows.w.sum(1).double()]).tolist()
        ledgers = [cursor.request.ledger for cursor in cursors]
        torch._foreach_copy_([ledger.losses for ledger in ledgers], [self.rows.losses[row] for row in rows])
        answers = list[Weights | BaseException]()
        for cursor, weights, ledger in zip(cursors, found, ledgers, strict=True):
            ledger.take(losses[cursor.row], cursor.done, cursor.logged)
            if isfinite(sums[cursor.row]):
                ledger.note_finite(weights)
            try:
                self._copy_back(cursor)
                answers.append(weights)
            except Exception as error:
                answers.append(error)
        return answers

    def wait(self, cursors: Sequence[C]) -> None:
        """Has the device's next work wait for the steps of these fits."""

    def _copy_back(self, cursor: C) -> None:
        row, fit = cursor.row, cursor.request.fit
        given = fit.inputs
        for name in self.written:
            if isinstance(given[name], Tensor):
                given[name].copy_(self.needs[name][row])
        if fit.memory is not None:
            momentum = self.rows.momentum[row].clone()
            if fit.move is not None:
                before = fit.memory.get("optimizer", {}).get(MOMENTUM)
                momentum = choose(
                    fit.move.mask.to(momentum.device),
                    momentum,
                    torch.zeros_like(momentum) if before is None else before,
                )
            fit.memory["optimizer"] = {MOMENTUM: momentum} if self.engine.train.momentum else {}
