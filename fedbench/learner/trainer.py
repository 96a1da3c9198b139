"""The other engine: the same job through lightning.Trainer, for modules that need one. Slower by some 20 ms a fit."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

if TYPE_CHECKING:
    from fedbench.learner.learner import Job, Learner


class PlannedBatches(IterableDataset):
    """The job's batches, one epoch per iteration."""

    def __init__(self, job: "Job") -> None:
        self.job, self.epoch = job, 0

    def __iter__(self) -> Iterator[Any]:
        for index in self.job.epochs[self.epoch]:
            batch = self.job.data.batch(index)
            yield batch if self.job.second is None else (batch, next(self.job.second))
        self.epoch += 1


class TrainerStepper:
    """What `fit` asked of the optimiser, kept until the Trainer has one."""

    def __init__(self, lr: float | None, train_only: Tensor | None, memory: dict[str, Any] | None) -> None:
        self.lr, self.train_only, self.memory = lr, train_only, memory
        self.optimizer: torch.optim.Optimizer | None = None

    def state(self) -> dict[str, Any]:
        return self.optimizer.state_dict()["state"] if self.optimizer else {}


class MethodSteps(Callback):
    """Puts a method's gradient edits, frozen entries and epoch work into Lightning's loop."""

    def __init__(self, learner: "Learner", job: "Job", stepper: TrainerStepper) -> None:
        self.learner, self.job, self.stepper = learner, job, stepper
        self.losses: list[Tensor] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stepper.optimizer = optimizer = trainer.optimizers[0]
        if self.stepper.memory and "optimizer" in self.stepper.memory:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": self.stepper.memory["optimizer"]})
        if self.learner.optimizer == "module":
            for group in optimizer.param_groups:
                group["lr"] = (self.stepper.lr if self.stepper.lr is not None else group["lr"]) * self.learner.lr_factor

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.job.before_epoch:
            self.job.before_epoch(trainer.current_epoch, self.learner.weights(), self.job.state)
            pl_module.train()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.stepper.train_only is not None:
            self._before = self.learner.w.clone()

    @torch.no_grad()
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        if self.job.gradient is None:
            return
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.learner._parameters]
        self.learner.g.copy_(torch.cat([g.reshape(-1) for g in grads]))
        self.job.gradient(self.learner.g, self.learner.w, self.job.state)
        self.learner._attach_gradients()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.stepper.train_only is not None:
            torch.where(self.stepper.train_only, self.learner.w, self._before, out=self.learner.w)
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if loss is not None:
            self.losses.append(loss.detach())


def run(learner: "Learner", job: "Job") -> None:
    """Run a job through lightning.Trainer."""
    stepper = job.stepper
    assert isinstance(stepper, TrainerStepper)
    steps = MethodSteps(learner, job, stepper)
    if job.epochs and any(job.epochs):
        with _quiet(), _as_asked(learner, job, stepper):
            trainer = Trainer(
                max_epochs=len(job.epochs),
                accelerator="gpu" if learner.device.type == "cuda" else "cpu",
                devices=1,
                precision=learner.train.precision,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=[steps],
                limit_val_batches=0,
            )
            trainer.fit(learner.module, DataLoader(PlannedBatches(job), batch_size=None))
            learner.ledger.logged.update({k: float(v) for k, v in trainer.callback_metrics.items() if v.numel() == 1})
    if learner.device.type != "cpu":
        learner.module.to(learner.device)
        learner._bind()
    learner._attach_gradients()
    learner.ledger.steps += len(steps.losses)
    learner.ledger.loss_sum += sum(float(loss) for loss in steps.losses)


@contextmanager
def _as_asked(learner: "Learner", job: "Job", stepper: TrainerStepper) -> Iterator[None]:
    """Give the module the job's loss and optimiser for the time of one fit."""
    module = learner.module
    if job.loss is not None:
        loss = job.loss
        module.training_step = lambda batch, batch_idx: loss(module, batch, job.state)  # type: ignore[method-assign]
    if learner.optimizer != "module":
        module.configure_optimizers = lambda: _optimizer(learner, stepper)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name in ("training_step", "configure_optimizers"):
            module.__dict__.pop(name, None)


def _optimizer(learner: "Learner", stepper: TrainerStepper) -> torch.optim.Optimizer:
    train = learner.train
    rate = (stepper.lr if stepper.lr is not None else train.lr) * learner.lr_factor
    if learner.optimizer == "sgd":
        return torch.optim.SGD(learner._parameters, rate, train.momentum, weight_decay=train.weight_decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[learner.optimizer]
    return kind(learner._parameters, rate, weight_decay=train.weight_decay)


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
