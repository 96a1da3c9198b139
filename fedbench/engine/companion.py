"""A second model, trained batch by batch beside the model of a fit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit, Step
from fedbench.engine.losses import outputs_of, task_loss
from fedbench.engine.optimizers import Stepper, make_stepper
from fedbench.module import seeds
from fedbench.module.weights import Weights


class Companion:
    """A second set of weights with its own optimiser and random stream on the module of a training.

    A step leaves the training unchanged; its optimiser follows the settings that a scheduler gives to the training's.
    On the module's own loss it takes the same steps as a separate fit, to the bit. What the module logs meanwhile is
    dropped. weights: its current weights; other: those of the training while this one steps.
    """

    other: Weights

    def __init__(
        self,
        engine: Engine,
        fit: Fit,
        start: Weights,
        memory: dict[str, Any] | None,
        followed: Stepper,
        steps: int,
    ) -> None:
        self.engine, self.weights, self._followed = engine, start.clone(), followed
        self._fit = Fit(start, fit.data, fit.stream, step=Step(lr=fit.step.lr, decay=fit.step.decay, memory=memory))
        assert engine.hooks is not None
        self._silence = engine.hooks.logs.silence
        self._streams = seeds.TorchStream(*fit.data.key, fit.stream)
        with self._with_own_weights():
            self._stepper = make_stepper(engine, self._fit, steps)
        self._stepped = False

    def step(
        self,
        batch: Any,
        loss: Callable[[LightningModule, Any], Tensor] = task_loss,
        at: Callable[[Tensor], Tensor] | None = None,
        edit: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        """One step of the optimiser.

        loss: a function of the module, with this model's weights, and the batch. at: maps the parameters `[N]` to the
        point of the gradient (default: the parameters). edit: changes the gradient `[N]`, given the parameters, in
        place.
        """
        engine, stepper = self.engine, self._stepper

        def closure() -> Tensor:
            with engine.flat.pointing_to(None if at is None else at(engine.flat.w)):
                with torch.enable_grad(), engine.flat.autocast():
                    self._loss = loss(engine.flat.module, batch)
                stepper.zero_grad()
                self._loss.backward()
            stepper.gather()
            if edit is not None:
                with torch.no_grad():
                    edit(engine.flat.g, engine.flat.w)
            return self._loss

        with self._with_own_weights(), self._streams.active(), self._silence():
            for own, followed in zip(
                stepper.optimizer.param_groups, self._followed.optimizer.param_groups, strict=True
            ):
                for name, value in followed.items():
                    if name != "params":
                        own[name] = value.clone() if isinstance(value, Tensor) else value
            stepper.step(closure)
            engine.ledger.add(self._loss)
            self._stepped = True

    def scores_of_other(self, x: Tensor) -> Tensor:
        """Outputs of the training's model in train mode, with the dropout masks of this model's pass."""
        weights = self.engine.flat.weights()
        self.engine.flat.load(self.other)
        with torch.no_grad(), seeds.preserved_torch_stream(), self.engine.flat.autocast():
            scores: Tensor = outputs_of(self.engine.flat.module(x))
        self.engine.flat.load(weights)
        return scores

    @contextmanager
    def _with_own_weights(self) -> Iterator[None]:
        """The module with this model's weights, which are updated at the end; then the training's are restored."""
        engine = self.engine
        self.other = engine.flat.weights()
        engine.flat.load(self.weights)
        yield
        self.weights = engine.flat.weights()
        engine.flat.load(self.other)

    def finish(self) -> Weights:
        """Saves the optimiser's state and returns the trained weights."""
        if self._fit.memory is not None and self._stepped:
            self._fit.memory["optimizer"] = self._stepper.state()
        self._stepper.release()
        return self.weights
