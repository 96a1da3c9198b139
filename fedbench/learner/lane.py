"""A second model that is trained batch by batch beside the one of a fit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor
from torch.optim import Optimizer

from fedbench.learner import seeds
from fedbench.learner.learner import Batches, Job, Learner
from fedbench.learner.optimizers import Stepper, make_stepper
from fedbench.learner.weights import Weights


class Lane:
    """Numbers, an optimiser and random streams of its own on a learner's one module.

    Stepped from `before_step` or `after_step` of `Learner.fit`, whose own model stays as if there were no lane. What it
    is trained by is all its own: on the same loss it takes the steps that a fit of its own would take, to the bit.
    weights: its numbers now; purpose: names its random stream; memory: as in `Learner.fit`.
    """

    def __init__(
        self, learner: Learner, weights: Weights, data: Batches, purpose: str, memory: dict[str, Any] | None = None
    ) -> None:
        self.learner, self.weights = learner, weights
        self._job, self._streams = Job(data, [], memory=memory), seeds.TorchStream(*data.key, purpose)
        self._stepper: Stepper | None = None
        self._losses: list[Tensor] = []
        self._moved = True

    def present(self) -> Weights:
        """The lane's numbers while the module holds them, not to be written to: a copy only where a step moved them.

        Some optimisers, such as LBFGS, ask for several gradients in a step and move in between.
        """
        return self.learner.weights() if self._moved else self.weights

    def step(self, closure: Callable[[Weights], Tensor], like: Optimizer) -> None:
        """One gradient step, with the settings that a scheduler has given to the optimiser `like`.

        closure: called with the numbers of the fit's model while the module holds this lane's; it leaves those there
        and their gradient in `learner.g` (see `gradient`), and returns the loss. What the module logs is dropped.
        """
        learner, other = self.learner, self.learner.weights()
        with self._streams.entered(), _unlogged(learner.module), torch.enable_grad():
            learner.load(self.weights)
            self._moved = False
            stepper = self._stepper = self._stepper or make_stepper(learner, self._job)
            for own, followed in zip(stepper.optimizer.param_groups, like.param_groups, strict=True):
                own.update({name: value for name, value in followed.items() if name != "params"})
            stepper.step(lambda: self._loss(closure(other)))
            self._losses.append(self._last)
            self.weights = learner.weights()
        learner.load(other)

    def _loss(self, loss: Tensor) -> Tensor:
        self._last, self._moved = loss.detach(), True
        return loss

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient `[N]` of a loss, in `learner.g`."""
        assert self._stepper is not None
        self._stepper.zero_grad()
        loss.backward()
        self._stepper.gather()
        return self.learner.g

    def finish(self) -> Weights:
        """Count the steps, keep the optimiser's state, and return the trained numbers."""
        self.learner.ledger.add(self._losses)
        if self._job.memory is not None and self._stepper is not None:
            self._job.memory["optimizer"] = self._stepper.state()
        return self.weights


@contextmanager
def _unlogged(module: LightningModule) -> Iterator[None]:
    """`self.log` without effect."""
    kept: dict[str, Any] = {name: module.__dict__.pop(name) for name in ("log", "log_dict") if name in module.__dict__}
    module.log = module.log_dict = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del module.log, module.log_dict
        module.__dict__.update(kept)
