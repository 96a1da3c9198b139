"""A second model that is trained batch by batch beside the one of a fit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.fit import Fit, Step
from fedbench.engine.losses import outputs_of, task_loss
from fedbench.engine.optimizers import Stepper, make_stepper
from fedbench.engine.trainee import Trainee
from fedbench.module import seeds
from fedbench.module.weights import Weights


class Companion:
    """Numbers, an optimiser and a random stream of its own on the one module of a training.

    A step leaves the training as if there were no companion; its optimiser follows the settings that a scheduler gives
    to the training's. On the module's own loss it takes the steps that a fit of its own would take, to the bit. What
    the module logs meanwhile is dropped. weights: its numbers now; other: those of the training while this one steps.
    """

    other: Weights

    def __init__(
        self,
        learner: Trainee,
        fit: Fit,
        start: Weights,
        memory: dict[str, Any] | None,
        followed: Stepper,
        steps: int,
    ) -> None:
        self.learner, self.weights, self._followed = learner, start.clone(), followed
        self._fit = Fit(start, fit.data, fit.stream, step=Step(lr=fit.step.lr, decay=fit.step.decay, memory=memory))
        self._streams = seeds.TorchStream(*fit.data.key, fit.stream)
        with self._entered():
            self._stepper = make_stepper(learner, self._fit, steps)
        self._stepped = False

    def step(
        self,
        batch: Any,
        loss: Callable[[LightningModule, Any], Tensor] = task_loss,
        at: Callable[[Tensor], Tensor] | None = None,
        edit: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        """One step of the optimiser.

        loss: of the module, which holds this model's numbers, and the batch. at: where, given the parameters `[N]`, its
        gradient is taken, instead of there. edit: changes the gradient `[N]`, given the parameters, in place.
        """
        learner, stepper = self.learner, self._stepper

        def closure() -> Tensor:
            with learner.shown(None if at is None else at(learner.w)):
                with torch.enable_grad(), learner.autocast():
                    self._loss = loss(learner.module, batch)
                stepper.zero_grad()
                self._loss.backward()
            stepper.gather()
            if edit is not None:
                with torch.no_grad():
                    edit(learner.g, learner.w)
            return self._loss

        with self._entered(), self._streams.entered(), unlogged(learner.module):
            for own, followed in zip(
                stepper.optimizer.param_groups, self._followed.optimizer.param_groups, strict=True
            ):
                for name, value in followed.items():
                    if name != "params":
                        own[name] = value.clone() if isinstance(value, Tensor) else value
            stepper.step(closure)
            learner.ledger.add(self._loss)
            self._stepped = True

    def scores_of_other(self, x: Tensor) -> Tensor:
        """What the training's model says of inputs in train mode, with the dropout masks that this one's pass gets."""
        own = self.learner.weights()
        self.learner.load(self.other)
        with torch.no_grad(), seeds.preserved_torch_stream(), self.learner.autocast():
            found: Tensor = outputs_of(self.learner.module(x))
        self.learner.load(own)
        return found

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """The module with this model's numbers, which are those that it has at the end; then with the training's."""
        learner = self.learner
        self.other = learner.weights()
        learner.load(self.weights)
        yield
        self.weights = learner.weights()
        learner.load(self.other)

    def finish(self) -> Weights:
        """Keep the optimiser's state, and return the trained numbers."""
        if self._fit.memory is not None and self._stepped:
            self._fit.memory["optimizer"] = self._stepper.state()
        self._stepper.release()
        return self.weights


@contextmanager
def unlogged(module: LightningModule) -> Iterator[None]:
    """`self.log` without effect."""
    kept: dict[str, Any] = {name: module.__dict__.pop(name) for name in ("log", "log_dict") if name in module.__dict__}
    module.log = module.log_dict = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del module.log, module.log_dict
        module.__dict__.update(kept)
