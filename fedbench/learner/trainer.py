"""The other engine: the same job through lightning.Trainer, for modules that need one. Slower by some 20 ms a fit."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import Optimizer

from fedbench.errors import ConfigError
from fedbench.learner.loop import ask_before_epoch
from fedbench.learner.optimizers import as_vectors, built_in, first_line, module_optimizer, own_optimizer, restrain

if TYPE_CHECKING:
    from fedbench.learner.learner import Job, Learner


def run(learner: "Learner", job: "Job") -> None:
    """Run a job through lightning.Trainer."""
    steps = MethodSteps(learner, job)
    if any(job.epochs):
        if job.loss is not None and not learner.module.automatic_optimization:
            raise ConfigError(
                f"{type(learner.module).__name__} optimises manually, and this method needs a loss of its own"
            )
        if job.before_epoch:
            ask_before_epoch(learner, job, 0)  # the Trainer fetches the first batch before it begins the epoch
        with _quiet(), _as_asked(learner, job):
            trainer = _trainer(learner, len(job.epochs), steps)
            try:
                trainer.fit(learner.module, PlannedBatches(job))
            except MisconfigurationException as error:
                raise ConfigError(f"lightning.Trainer: {first_line(error)}") from error
            finally:
                learner.module._trainer = None
        learner.ledger.logged.update({k: float(v) for k, v in trainer.callback_metrics.items() if v.numel() == 1})
    if learner.device.type != "cpu":
        # The Trainer takes the module off the device when it is done.
        learner.module.to(learner.device)
        learner.bind()
    learner.ledger.add(steps.losses)
    if job.memory is not None and steps.optimizer is not None:
        state = steps.optimizer.state_dict()["state"]
        job.memory["optimizer"] = state if job.optimizer is None else as_vectors(state, learner.layout)


class PlannedBatches:
    """The job's batches, one epoch per iteration. No DataLoader, which would draw from the global random stream."""

    def __init__(self, job: "Job") -> None:
        self.job, self.epochs = job, iter(job.epochs)

    def __iter__(self) -> Iterator[Any]:
        for index in next(self.epochs, []):
            yield self.job.batch(index)


class MethodSteps(Callback):
    """Puts a method's gradient edits, frozen entries and epoch work into Lightning's loop."""

    def __init__(self, learner: "Learner", job: "Job") -> None:
        self.learner, self.job = learner, job
        self.optimizer: Optimizer | None = None
        self.losses: list[Tensor] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.optimizer = trainer.optimizers[0]
        restrain(self.optimizer, self.learner, self.job)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.job.before_epoch and trainer.current_epoch:
            ask_before_epoch(self.learner, self.job, trainer.current_epoch)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # The Trainer has fetched the next batch already.
        self.job.state.index = self.job.epochs[trainer.current_epoch][batch_idx]
        if self.job.before_step is not None:
            self.job.before_step(batch, trainer.optimizers[0], self.job.state)

    @torch.no_grad()
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        learner, job = self.learner, self.job
        if job.gradient is None or all(p.grad is None for p in learner.parameters):
            return
        learner.g.zero_()
        for parameter, view in zip(learner.parameters, learner.gradient_views, strict=True):
            if parameter.requires_grad:
                if parameter.grad is not None:
                    view.copy_(parameter.grad)
                parameter.grad = view
        job.gradient(learner.g, learner.w, job.state)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.job.after_step is not None:
            self.job.after_step(batch, trainer.optimizers[0], self.job.state)
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            self.losses.append(loss.detach())


def _trainer(learner: "Learner", epochs: int, steps: MethodSteps) -> Trainer:
    return Trainer(
        max_epochs=epochs,
        accelerator="gpu" if learner.device.type == "cuda" else "cpu",
        devices=[learner.device.index or 0] if learner.device.type == "cuda" else 1,
        # One process, even where SLURM or torchrun have set their variables.
        plugins=[LightningEnvironment()],
        precision=learner.train.precision,
        logger=DummyLogger(),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[steps],
        limit_val_batches=0,
    )


@contextmanager
def _as_asked(learner: "Learner", job: "Job") -> Iterator[None]:
    """Give the module the job's loss and optimiser for the time of one fit."""
    module = learner.module
    if job.loss is not None:
        loss = job.loss
        module.training_step = lambda batch, batch_idx: loss(module, batch, job.state)  # type: ignore[method-assign, misc]
    if own_optimizer(learner, job):
        module.configure_optimizers = lambda: module_optimizer(module)[0]  # type: ignore[method-assign]
    else:
        # All parameters, also frozen ones: kept state is numbered by them, and what has no gradient does not move.
        optimizer = built_in(learner, learner.parameters, job, fused=False)
        module.configure_optimizers = lambda: optimizer  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name in ("training_step", "configure_optimizers"):
            module.__dict__.pop(name, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning announces devices and missing loaders at every fit."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
