"""Fits of one kind in one step: a row of every matrix for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from fedbench.engine.fit import Fit, Paired
from fedbench.engine.lane import Asked, Batch, Lane
from fedbench.engine.module_optimizer import own_optimizer
from fedbench.engine.optimizers import rate_of
from fedbench.engine.row_step import CannotStackError, RowStep, StepNames, check_step
from fedbench.engine.trainee import Trainee
from fedbench.module.layout import Slot
from fedbench.module.masks import choose, holds_one
from fedbench.module.weights import Weights

if TYPE_CHECKING:
    from fedbench.engine.stack import Stack

Need = tuple[str, tuple[int, ...], torch.dtype]
PLAIN = (str, bool, int, float, type(None), FunctionType)
AFTER = "_post_accumulate_grad_hooks"
MOMENTUM = "momentum_buffer"
"""torch.optim's name of it."""


@dataclass(frozen=True)
class Kind:
    """What fits have in common that are stepped together, batches aside.

    needs, edited: names and shapes of what the loss needs, and of what the edit needs beside it, which no trace holds.
    """

    function: Any
    constants: tuple[tuple[str, Any], ...]
    needs: tuple[Need, ...]
    edited: tuple[Need, ...]
    moving: tuple[bool, ...]
    masked: bool
    frozen: str
    lone: bool
    paired: bool
    edit: Any
    rate: float

    @property
    def step_key(self) -> tuple[Any, ...]:
        """What of it decides which code runs in a step."""
        function, moving = (self.function, self.constants, self.needs), (self.moving, self.frozen)
        return *function, *moving, self.lone, self.paired


def kind_of(learner: Trainee, fit: Fit) -> Kind:
    """Raises CannotStackError for a fit that cannot be stacked."""
    assert learner.hooks is not None
    if own_optimizer(learner, fit):
        raise CannotStackError("the model's own optimiser makes the steps")
    if fit.step.rule is not None:
        raise CannotStackError("the method brings an optimiser")
    if learner.optimizer != "sgd":
        raise CannotStackError(f"train.optimizer = {learner.optimizer}")
    if learner.train.precision == "bf16-mixed":
        raise CannotStackError("train.precision = bf16-mixed")
    if learner.train.batch_size == "full":
        raise CannotStackError("train.batch_size = full: batches of several clients have no size in common")
    if learner.hooks.calls:
        raise CannotStackError(f"the model overrides {', '.join(learner.hooks.calls)}")
    if hooked(learner.module):
        raise CannotStackError("the model has hooks on gradients")
    needs = vars(fit.needs(learner.w))
    tensors = {name: value for name, value in needs.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in needs.items() if name not in tensors}
    for name, value in constants.items():
        if not is_plain(value):
            raise CannotStackError(f"a loss or an edit of the method needs {name}, which is not a tensor")
    mask, data = None if fit.move is None else fit.move.mask, fit.data
    described = [(name, tuple(value.shape), value.dtype) for name, value in sorted(tensors.items())]
    own = fit.loss.needs if fit.loss else {}
    return Kind(
        function=fit.loss and known(fit.loss.function, "loss"),
        constants=tuple(sorted(constants.items())),
        needs=tuple(need for need in described if need[0] in own),
        edited=tuple(need for need in described if need[0] not in own),
        moving=tuple(mask is None or holds_one(mask[slot.start : slot.stop]) for slot in learner.layout.params),
        masked=mask is not None,
        frozen="train" if fit.move is None else fit.move.frozen,
        lone=len(data) == 1 or (isinstance(data, Paired) and len(data.second) == 1),
        paired=isinstance(data, Paired),
        edit=fit.step.edit and known(fit.step.edit, "edit"),
        rate=rate_of(learner, fit),
    )


def hooked(module: nn.Module) -> bool:
    """Whether something is called with gradients on their way back, which a trace would not do again."""
    own = [getattr(m, name) for m in module.modules() for name in ("_backward_hooks", "_backward_pre_hooks")]
    tensors = [getattr(p, name) for p in module.parameters() for name in ("_backward_hooks", AFTER)]
    return any(own) or any(tensors)


def known(function: Any, what: str) -> Any:
    """By what a loss or an edit is known again in the next fit. Raises CannotStackError where something hides in it."""
    if isinstance(function, partial):
        told = (*function.args, *function.keywords.items())
        if is_plain((function.func, *told)):
            return function.func, told
    elif is_plain(function):
        return function
    raise CannotStackError(f"the {what} of the method holds more than constants")


def is_plain(value: Any) -> bool:
    """Whether a trace may hold it as it is: equal means the same, and no client's tensors hide in it."""
    if isinstance(value, tuple):
        return all(isinstance(item, Slot) or is_plain(item) for item in value)
    return isinstance(value, PLAIN) and not getattr(value, "__closure__", None)


class Group:
    """Fits of one kind on their way through the stack, a row each."""

    def __init__(self, stack: "Stack", kind: Kind, asked: Sequence[Asked]) -> None:
        self.stack, self.kind, self.learner = stack, kind, stack.learner
        self.asked = asked
        self.needs = {
            name: torch.zeros(stack.width, *shape, dtype=dtype, device=stack.w.device)
            for name, shape, dtype in (*kind.needs, *kind.edited)
        }
        self.mask = torch.zeros_like(stack.w, dtype=torch.bool) if kind.masked else None
        self.start = torch.zeros_like(stack.w) if kind.masked else None
        self.written: set[str] = set()
        layout = self.learner.layout
        moves = dict(zip((slot.name for slot in layout.params), kind.moving, strict=True))
        names = StepNames(
            moving=tuple(name for name in moves if moves[name]),
            frozen=tuple(name for name in moves if not moves[name]),
            buffers=tuple(slot.name for slot in (*layout.buffers, *layout.counters)),
            needs=(*(name for name, *_ in kind.needs), "index"),
            constants=dict(kind.constants),
        )
        self.step = RowStep(self.learner.module, asked[0].fit.loss, names)

    def train(self) -> list[Weights]:
        """The trained weights of all. Raises CannotStackError where the steps cannot be stacked."""
        stack, learner = self.stack, self.learner
        with learner.in_train_mode(self.asked[0].fit):
            lanes = going = [Lane(learner, asked) for asked in self.asked]
            for lane in lanes:
                self._load(lane)
            self._check(lanes)
            with self.step.entered():
                while going:
                    for lane in going:
                        while lane.next is not None and (stack.width == 1 or not lane.is_full):
                            self._step_alone(lane)
                    going = [lane for lane in going if lane.next is not None]
                    if going:
                        self._step_together(going)
        return [self._finished(lane) for lane in lanes]

    def _check(self, lanes: Sequence[Lane]) -> None:
        """Try the step on a first batch, once for all fits of this kind. Raises CannotStackError."""
        refusals, key = self.stack.refusals, self.kind.step_key
        first = next(((lane.row, lane.next) for lane in lanes if lane.next is not None), None)
        if first is None:
            return
        if key not in refusals:
            refusals[key] = self._refusal(*first)
        if (refusal := refusals[key]) is not None:
            raise refusal

    def _refusal(self, row: int, batch: Batch) -> CannotStackError | None:
        example = self._inputs(row, batch.index, batch.tensors)
        try:
            check_step(self.learner.module, self.step.loss, self.step.names, example)
        except CannotStackError as error:
            return error
        return None

    def _load(self, lane: Lane) -> None:
        stack, row, fit, layout = self.stack, lane.row, lane.asked.fit, self.learner.layout
        stack.w[row].copy_(fit.start.params)
        for rows, part in zip(stack.buffers, split(fit.start.buffers, layout.buffers), strict=True):
            rows[row].copy_(part)
        for rows, part in zip(stack.counters, split(fit.start.counters, layout.counters), strict=True):
            rows[row].copy_(part)
        stack.losses[row].copy_(lane.asked.ledger.losses)
        held = (fit.memory or {}).get("optimizer", {}).get(MOMENTUM)
        stack.momentum[row].zero_() if held is None else stack.momentum[row].copy_(held)
        needs = vars(fit.needs(stack.w))
        for name, rows in self.needs.items():
            rows[row].copy_(needs[name])
        if self.mask is not None and self.start is not None and fit.move is not None:
            self.mask[row].copy_(fit.move.mask)
            self.start[row].copy_(fit.start.params)

    def _step_together(self, lanes: Sequence[Lane]) -> None:
        stack, batches = self.stack, [lane.taken() for lane in lanes]
        rows = [lane.row for lane in lanes]
        resting = [row for row in range(stack.width) if row not in set(rows)]
        index, *tensors = (
            stacked(parts, rows, stack.width)
            for parts in zip(*((batch.index, *batch.tensors) for batch in batches), strict=True)
        )
        changing = [stack.w, stack.momentum, *stack.buffers, *stack.counters, *self.needs.values()]
        kept = [(whole, whole[resting]) for whole in changing] if resting else []
        losses, logged = self._move(None, index, tensors)
        for whole, before in kept:
            whole[resting] = before
        if resting:
            stack.losses[rows] += losses[rows]
        else:
            stack.losses.add_(losses)
        values = [value.unbind(0) for value in logged]
        for lane, batch in zip(lanes, batches, strict=True):
            lane.log(self.step.logged.calls, [value[lane.row] for value in values], batch)

    def _step_alone(self, lane: Lane) -> None:
        batch = lane.taken()
        loss, logged = self._move(lane.row, batch.index, batch.tensors)
        self.stack.losses[lane.row].add_(loss)
        lane.log(self.step.logged.calls, logged, batch)

    def _move(self, row: int | None, index: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """A gradient step of one row, or of all: the loss, and what the module logs."""
        stack = self.stack
        views = stack.views(self.kind.moving, row)
        before = [value._version for value in self.needs.values()]
        loss, gradients, logged = self.step(self._inputs(row, index, tensors), stacked=row is None)
        g, w = ((whole if row is None else whole[row]) for whole in (stack.g, stack.w))
        with torch.no_grad():
            if views.resting:
                g.zero_()
            for view, gradient in zip(views.gradients, gradients, strict=True):
                view.copy_(gradient)
            if (asked := self.asked[0].fit.step).edit is not None:
                asked.change(g, w, SimpleNamespace(index=index, **self._edited(row), **dict(self.kind.constants)))
            train = self.learner.train
            sgd(
                [w],
                [g],
                [stack.momentum if row is None else stack.momentum[row]] if train.momentum else [],
                fused=True,
                lr=self.kind.rate,
                momentum=train.momentum,
                weight_decay=train.weight_decay,
                dampening=0,
                nesterov=False,
                maximize=False,
            )
            if self.mask is not None and self.start is not None:
                mask, start = (rows if row is None else rows[row] for rows in (self.mask, self.start))
                torch.where(mask, w, start, out=w)
        self.written.update(
            name for (name, value), version in zip(self.needs.items(), before, strict=True) if value._version != version
        )
        return loss, logged

    def _inputs(self, row: int | None, index: Tensor, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        views = self.stack.views(self.kind.moving, row)
        whole = [self.needs[name] for name, *_ in self.kind.needs]
        needs = [value if row is None else value[row] for value in whole]
        return [views.moving, views.resting, views.buffers, [*tensors], [*needs, index]]

    def _edited(self, row: int | None) -> dict[str, Tensor]:
        """What an edit gets: vectors, and numbers as `[]` or `[K, 1]`."""
        if row is not None:
            return {name: value[row] for name, value in self.needs.items()}
        return {name: value.unsqueeze(-1) if value.dim() == 1 else value for name, value in self.needs.items()}

    def _finished(self, lane: Lane) -> Weights:
        """Hand over what the fit has changed."""
        stack, row, fit, ledger = self.stack, lane.row, lane.asked.fit, lane.asked.ledger
        ledger.losses.copy_(stack.losses[row])
        ledger.steps += lane.done
        ledger.known += lane.done
        ledger.logged.update(lane.logged)
        needs = {**fit.step.needs, **(fit.loss.needs if fit.loss else {})}
        for name in self.written:
            if isinstance(needs[name], Tensor):
                needs[name].copy_(self.needs[name][row])
        if fit.memory is not None:
            momentum = stack.momentum[row].clone()
            if fit.move is not None:
                before = fit.memory.get("optimizer", {}).get(MOMENTUM)
                momentum = choose(fit.move.mask, momentum, torch.zeros_like(momentum) if before is None else before)
            fit.memory["optimizer"] = {MOMENTUM: momentum} if self.learner.train.momentum else {}
        buffers, counters = ([rows[row].flatten() for rows in part] for part in (stack.buffers, stack.counters))
        return Weights(
            params=stack.w[row].clone(),
            buffers=torch.cat([stack.w.new_zeros(0), *(part.to(stack.w.dtype) for part in buffers)]),
            counters=torch.cat(
                [torch.zeros(0, dtype=torch.int64), *(part.to("cpu", torch.int64) for part in counters)]
            ),
        )


def split(vector: Tensor, slots: Sequence[Slot]) -> list[Tensor]:
    """The tensors of a flat vector."""
    return [vector[slot.start : slot.stop].view(slot.shape) for slot in slots]


def stacked(parts: Sequence[Tensor], rows: Sequence[int], width: int) -> Tensor:
    """Tensors of some rows as one of all; what the other rows hold is of no matter."""
    filled = [parts[0]] * width
    for row, part in zip(rows, parts, strict=True):
        filled[row] = part
    return torch.stack(filled)
