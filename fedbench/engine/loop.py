"""The training loop of a LightningModule without a Trainer."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.companion import Companion
from fedbench.engine.engine import BatchPlan, Engine, first_step
from fedbench.engine.fit import Fit
from fedbench.engine.losses import needed_loss, result_of, trained_loss
from fedbench.engine.module_optimizer import advance, epochs_before, keep_schedule
from fedbench.engine.optimizers import Stepper, make_stepper
from fedbench.errors import ConfigError
from fedbench.module.hooks import TRANSFER, takes_index
from fedbench.module.inputs import batch_for, inputs_of
from fedbench.module.weights import Weights

At = Callable[[Tensor], Tensor]


class Loop(Engine):
    """The default engine: every epoch and batch of a fit, in Lightning's order of hooks."""

    def run(self, fit: Fit, plan: BatchPlan) -> None:
        training = Training(self, fit, plan)
        for batch in training:
            training.step(batch)
        training.finish()

    @contextmanager
    def training(self, fit: Fit) -> Iterator["Training"]:
        """A fit whose steps the caller takes, batch by batch. Its `weights` are the trained weights afterwards."""
        with self.prepare(fit) as plan:
            training = Training(self, fit, plan)
            yield training
            training.finish()
        self.flat.check()
        training.weights = self.flat.weights()


class Training:
    """A running fit: iterate over its batches and take a step with each.

    A method that trains differently takes the steps itself: it computes gradients at any point, moves `w` by its own
    rule, or steps a companion. Every gradient is computed in train mode and counts as a gradient step. weights: the
    trained weights, after the training.
    """

    weights: Weights

    def __init__(self, engine: Engine, fit: Fit, plan: BatchPlan) -> None:
        assert engine.hooks is not None
        self.engine, self.fit, self.hooks = engine, fit, engine.hooks
        self.hooks.begin(plan)
        self.plan = first_step(plan) if fit.amount.trial else plan
        self.stepper: Stepper = make_stepper(engine, fit, sum(map(len, plan)))
        self.needs = fit.needs(engine.flat.w)
        self.loss: Tensor | None = None
        self.output: Any = None
        self._autocast = engine.flat.autocast()
        self._with_index = takes_index(engine.flat.module)
        self._transfers = any(hook in self.hooks.calls for hook in TRANSFER)
        self._structured = inputs_of(engine.flat.module) is not None
        if self._transfers and self._structured:
            raise ConfigError(
                f"{type(engine.flat.module).__name__} changes batches in its transfer hooks, which works with batches "
                "(samples, targets) only: let the data set do it"
            )
        self._second = engine.second_batches(fit)
        self._data = engine.training_data(fit)
        self._fetched: tuple[Tensor | None, Any] = (None, None)
        self._position, self._epochs_before = 0, epochs_before(fit)
        self._every, self._batches, self._summed = engine.train.accumulate, 0, False
        self.hooks("on_fit_start")
        self.hooks("on_train_start")

    @property
    def w(self) -> Tensor:
        """The parameters in training `[N]`, to be changed in place."""
        return self.engine.flat.w

    def __iter__(self) -> Iterator[Any]:
        """All batches, epoch after epoch."""
        return chain.from_iterable(self.epochs())

    def epochs(self) -> Iterator[Iterator[Any]]:
        """The batches of every epoch. Between two epochs, evaluate in `paused`."""
        for number, batches in enumerate(self.plan):
            yield from self._epoch(number, [[index] for index in batches], lambda index, rest: self.fetch(index))

    def groups(self, size: int | None) -> Iterator[list[Tensor]]:
        """Places, for `fetch`, of `size` consecutive batches for one step; None: all batches of an epoch.

        Groups continue across epochs; an incomplete group at the end is dropped.
        """
        plan: list[list[list[Tensor]]]
        if size is None:
            plan = [[epoch] for epoch in self.plan]
        elif size == 1:
            plan = [[[index] for index in epoch] for epoch in self.plan]
        else:
            stream = list(chain.from_iterable(self.plan))
            plan = [[stream[i : i + size] for i in range(0, len(stream) - size + 1, size)]]
        for number, groups in enumerate(plan):
            for epoch in self._epoch(number, groups, lambda index, rest: [index, *rest]):
                yield from epoch

    def _epoch(self, number: int, groups: list[list[Tensor]], give: Callable[..., Any]) -> Iterator[Iterator[Any]]:
        hooks, logs = self.hooks, self.hooks.logs
        hooks.context.update(current_epoch=number)
        hooks("on_train_epoch_start")
        yield self._steps(groups, give)
        logs.in_step = False
        hooks("on_train_epoch_end")
        self._advance("epoch", number + 1, plateau=True)
        self.engine.ledger.logged.update(logs.end_epoch())

    def _steps(self, groups: list[list[Tensor]], give: Callable[..., Any]) -> Iterator[Any]:
        """The input of every step of an epoch, within the module's hooks."""
        hooks, context = self.hooks, self.hooks.context
        self._batches = len(groups)
        for position, (first, *rest) in enumerate(groups):
            hooks.logs.in_step, self._position = True, position
            batch = self.fetch(first)
            go_on = hooks("on_train_batch_start", self._batch_for_module(batch), position) != -1
            if go_on:
                yield give(first, rest)
                context.update(global_step=context.global_step + self._ends_step)
            if self.stepper.schedulers:
                self._advance("step", position + 1, plateau=False)
                if position + 1 == len(groups) or not go_on:
                    self._advance("epoch", context.current_epoch + 1, plateau=False)
            if not go_on:
                break
            if "on_train_batch_end" in hooks.calls:
                scaled = self.loss if self.loss is None or self._every == 1 else self.loss / self._every
                hooks("on_train_batch_end", result_of(self.output, scaled), self._batch_for_module(batch), position)
            self._advance("step", position + 1, plateau=True)

    def fetch(self, index: Tensor) -> Any:
        """The batch at these places; the last fetched batch is cached."""
        if self._fetched[0] is not index:
            self.hooks.logs.batch_size = len(index)
            self.needs.index = index
            batch: Any = self._data.batch(index)
            if self._second is not None:
                batch = batch, next(self._second)
            if self._transfers:
                batch = self.hooks.transfer(batch, self.engine.flat.device)
            self._fetched = index, batch
        return self._fetched[1]

    def step(self, batch: Any, at: At | None = None) -> None:
        """One step of the optimiser, or with `train.accumulate` a part of it.

        at: maps `w` to the point of the gradient (default: `w`).
        """
        if self._ends_step:
            self.stepper.step(lambda: self._closure(batch, at))
        else:
            self._closure(batch, at)
        if self.loss is not None:
            self.engine.ledger.add(self.loss)

    def gradient(self, batch: Any) -> Tensor:
        """Gradient `[N]` of a batch at the current `w`; the next one overwrites it."""
        self._count(self._closure(batch, None))
        self.stepper.gather()
        return self.engine.flat.g

    def hessian_product(self, batch: Any, vector: Tensor) -> Tensor:
        """The Hessian of a batch's loss at the current `w`, times `vector` `[N]`, by differentiating twice."""
        parameters, slots = self.engine.flat.parameters, self.engine.flat.layout.params
        with torch.enable_grad(), self._autocast:
            self.output = self._forward(batch)
            self.loss = loss = self._count(trained_loss(self.output, self.engine.flat.module))
            first = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True)
            along = [(g * slot.view(vector)).sum() for g, slot in zip(first, slots, strict=True)]
            slope = torch.stack(along).sum()
            if not slope.requires_grad:
                return torch.zeros_like(vector)
            second = torch.autograd.grad(slope, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in second])

    def kept_buffers(self) -> AbstractContextManager[None]:
        """A context for passes that leave running statistics unchanged."""
        return self.engine.flat.kept_buffers()

    def paused(self) -> AbstractContextManager[Weights]:
        """The current weights, to evaluate; training continues unchanged."""
        return self.engine.flat.preserve()

    def beside(self, start: Weights, memory: dict[str, Any] | None = None) -> Companion:
        """A second model, trained on the same batches by its own steps between those of this one."""
        return Companion(self.engine, self.fit, start, memory, self.stepper, sum(map(len, self.plan)))

    @property
    def _ends_step(self) -> bool:
        """Whether the optimiser steps after this batch; with `train.accumulate`, others only add their gradient."""
        return (self._position + 1) % self._every == 0 or self._position + 1 == self._batches

    def _closure(self, batch: Any, at: At | None) -> Tensor | None:
        """Loss and gradient of a batch, added to those before it in its step."""
        hooks, stepper = self.hooks, self.stepper
        with self.engine.flat.pointing_to(None if at is None else at(self.engine.flat.w)):
            with torch.enable_grad(), self._autocast:
                self.output = self._forward(batch)
                self.loss = loss = trained_loss(self.output, self.engine.flat.module)
            if self._position % self._every == 0:
                hooks("on_before_zero_grad", stepper.optimizer)
                stepper.zero_grad()
                self._summed = False
            if loss is not None:
                part = loss if self._every == 1 else loss / self._every
                hooks("on_before_backward", part)
                part.backward()
                hooks("on_after_backward")
                self._summed = True
        if not self._ends_step:
            return None
        if (batches := self._position % self._every + 1) < self._every:
            stepper.scale(self._every / batches)
        if self._summed and self.fit.step.edit is not None:
            stepper.gather()
            with torch.no_grad():
                self.fit.step.change(self.engine.flat.g, self.engine.flat.w, self.needs)
        hooks("on_before_optimizer_step", stepper.optimizer)
        return torch.zeros(()) if loss is None and self._summed else loss

    def _forward(self, batch: Any) -> Any:
        module = self.engine.flat.module
        if self.fit.loss is not None:
            return self.fit.loss.of(module, batch, self.needs)
        seen = self._batch_for_module(batch)
        return module.training_step(seen, self._position) if self._with_index else module.training_step(seen)

    def _batch_for_module(self, batch: Any) -> Any:
        """The batch as the module expects it."""
        return batch_for(self.engine.flat.module, batch) if self._structured else batch

    def _count(self, loss: Tensor | None) -> Tensor:
        known = needed_loss(loss, self.engine.flat.module)
        self.engine.ledger.add(known)
        return known

    def _advance(self, interval: str, count: int, plateau: bool) -> None:
        if self.stepper.schedulers and (interval == "epoch" or self._ends_step):
            count += self._epochs_before if interval == "epoch" else 0
            advance(self.stepper.schedulers, interval, count, plateau, self.hooks.logs.callback_metrics)

    def finish(self) -> None:
        """Saves the state of the optimiser and its schedulers."""
        self.hooks.context.update(current_epoch=len(self.plan))
        self.hooks("on_train_end")
        self.hooks("on_fit_end")
        if self.fit.memory is not None:
            self.fit.memory["optimizer"] = self.stepper.state()
            keep_schedule(self.fit, self.stepper.optimizer, self.stepper.schedulers, len(self.plan))
        self.stepper.release()
