"""Fits through lightning.Trainer."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor
from torch.optim import Optimizer

from fedbench.engine.engine import BatchPlan, Engine
from fedbench.engine.fit import Fit
from fedbench.engine.module_optimizer import (
    as_vectors,
    drop_frozen_gradients,
    keep_schedule,
    module_optimizer,
    own_optimizer,
    restrain,
    rounds_ahead,
)
from fedbench.engine.optimizers import built_in_optimizer
from fedbench.errors import ConfigError, first_line
from fedbench.models.compiled import unwrap
from fedbench.module.inputs import batch_for
from fedbench.silence import silence_logger


class TrainerEngine(Engine):
    """Runs fits through lightning.Trainer, for modules that need one. Slower by about 20 ms per fit."""

    warns_itself = True

    def run(self, fit: Fit, plan: BatchPlan) -> None:
        if fit.step.parts:
            raise ConfigError(
                "train.engine = trainer: this method steps parts of the model by settings of their own, which "
                "lightning.Trainer cannot run; leave it out"
            )
        steps = FitSteps(self, fit, plan)
        if any(plan):
            if fit.loss is not None and not self.flat.module.automatic_optimization:
                raise ConfigError(
                    f"{type(self.flat.module).__name__} optimises manually, but this method needs its own loss"
                )
            with _quiet(), _as_asked(self, steps):
                trainer = _trainer(self, len(plan), steps)
                try:
                    trainer.fit(self.flat.module, PlannedBatches(self, fit, plan, trainer))
                except MisconfigurationException as error:
                    raise ConfigError(f"lightning.Trainer: {first_line(error)}") from error
                finally:
                    self.flat.module._trainer = None
            self.ledger.logged.update({k: float(v) for k, v in trainer.callback_metrics.items() if v.numel() == 1})
        unwrap(self.flat.module)  # what its setup has recompiled
        if self.flat.device.type != "cpu":
            # The Trainer takes the module off the device when it is done.
            self.flat.module.to(self.flat.device)
            self.flat.bind()
        if fit.memory is not None and steps.optimizer is not None:
            state = steps.optimizer.state_dict()["state"]
            fit.memory["optimizer"] = state if fit.step.rule is None else as_vectors(state, self.flat.layout)
            keep_schedule(fit, steps.optimizer, steps.schedulers, len(plan))


class PlannedBatches:
    """The batches of the trainer's epoch of a fit. No DataLoader, which would draw from the global random stream.

    Its length is the number of batches of an epoch, if all epochs have the same.
    """

    def __init__(self, engine: Engine, fit: Fit, plan: BatchPlan, trainer: Trainer) -> None:
        self._lengths, self._plan, self._trainer = {len(epoch) for epoch in plan}, plan, trainer
        self._data, self._second = engine.training_data(fit), engine.second_batches(fit)
        self._module = engine.flat.module if fit.loss is None else None

    def __len__(self) -> int:
        if len(self._lengths) != 1:
            raise TypeError("epochs have different numbers of batches")
        (length,) = self._lengths
        return length

    def __iter__(self) -> Iterator[Any]:
        epoch = self._trainer.current_epoch
        for index in self._plan[epoch] if epoch < len(self._plan) else []:
            batch: Any = self._data.batch(index)
            if self._second is not None:
                batch = batch, next(self._second)
            yield batch if self._module is None else batch_for(self._module, batch)


class FitSteps(Callback):
    """Puts the gradient edit, frozen entries and loss of a fit into Lightning's loop, and counts its steps.

    For manual optimisation it counts the steps of all optimisers; the loss of a batch is the result of training_step,
    else the sum of the losses of manual_backward.
    """

    def __init__(self, engine: Engine, fit: Fit, plan: BatchPlan) -> None:
        self.engine, self.fit, self.plan, self.needs = engine, fit, plan, fit.needs(engine.flat.w)
        self.optimizer: Optimizer | None = None
        self.schedulers: list[Any] = []
        self._manual = not engine.flat.module.automatic_optimization
        self._passed_back: list[Tensor] = []
        self._position = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.optimizer, self.schedulers = trainer.optimizers[0], trainer.lr_scheduler_configs
        counted = [config for config in self.schedulers if config.interval == "epoch" and config.frequency > 1]
        if counted and self.engine.train.keep_optimizer:
            raise ConfigError(
                f"train.keep_optimizer = true: lightning.Trainer restarts the count of {counted[0].frequency} epochs "
                f"between two steps of {type(counted[0].scheduler).__name__} in every round; leave out train.engine"
            )
        if len(trainer.optimizers) > 1:
            self._check_several(pl_module)
        for optimizer in trainer.optimizers:
            restrain(optimizer, self.schedulers, self.engine, self.fit)
            if self._manual:
                optimizer.register_step_post_hook(self._count)

    def _check_several(self, module: LightningModule) -> None:
        """Raises ConfigError for what works with one optimiser only."""
        what = "the method changes its gradients" if self.fit.step.edit else ""
        what = "this run keeps the state of its optimiser" if self.fit.memory is not None else what
        if what:
            name = type(module).__name__
            raise ConfigError(f"{name}.configure_optimizers returns several optimisers, but {what}, which needs one")

    def _count(self, *_: Any) -> None:
        self.engine.ledger.steps += 1

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # The Trainer has fetched the next batch already.
        self.needs.index, self._position = self.plan[trainer.current_epoch][batch_idx], batch_idx

    @torch.no_grad()
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        engine = self.engine
        every, batches = engine.train.accumulate, self._position % engine.train.accumulate + 1
        for parameter in engine.flat.parameters if batches < every else ():
            if parameter.grad is not None:
                parameter.grad.mul_(every / batches)  # the Trainer takes the rest of an epoch for a whole step
        self._edit_gradient()
        if engine.train.clip_norm is not None:
            drop_frozen_gradients(engine, self.fit)

    def _edit_gradient(self) -> None:
        engine, step = self.engine, self.fit.step
        if step.edit is None or all(p.grad is None for p in engine.flat.parameters):
            return
        engine.flat.g.zero_()
        for parameter, view in zip(engine.flat.parameters, engine.flat.gradient_views, strict=True):
            if parameter.requires_grad:
                if parameter.grad is not None:
                    view.copy_(parameter.grad)
                parameter.grad = view
        step.change(engine.flat.g, engine.flat.w, self.needs)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        if self._manual:
            self._passed_back.append(loss.detach().reshape(()))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        ledger, passed_back = self.engine.ledger, self._passed_back
        if not self._manual and loss is not None:
            ledger.add(loss * self.engine.train.accumulate)
        elif self._manual and (loss is not None or passed_back):
            ledger.note(torch.stack(passed_back).sum() if loss is None else loss)
        passed_back.clear()
        if self.fit.amount.trial and trainer.global_step:
            trainer.should_stop = True


def _trainer(engine: Engine, epochs: int, steps: FitSteps) -> Trainer:
    return Trainer(
        max_epochs=epochs,
        accelerator="gpu" if engine.flat.device.type == "cuda" else "cpu",
        devices=[engine.flat.device.index or 0] if engine.flat.device.type == "cuda" else 1,
        # One process, even where SLURM or torchrun have set their variables.
        plugins=[LightningEnvironment()],
        precision=engine.train.precision,
        logger=DummyLogger(),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[steps],
        gradient_clip_val=engine.train.clip_norm,
        accumulate_grad_batches=engine.train.accumulate,
        limit_val_batches=0,
    )


@contextmanager
def _as_asked(engine: Engine, steps: FitSteps) -> Iterator[None]:
    """Gives the module the loss and optimiser of a fit within the context."""
    module, fit = engine.flat.module, steps.fit
    if fit.loss is not None:
        loss = fit.loss.of
        module.training_step = lambda batch, batch_idx: loss(module, batch, steps.needs)  # type: ignore[method-assign, misc]
    if own_optimizer(engine, fit):
        module.configure_optimizers = lambda: _configure_for_rounds(module, rounds_ahead(engine, fit))  # type: ignore[method-assign]
    else:
        # All parameters, frozen ones too: kept state is numbered by them, and without a gradient they do not move.
        optimizer = built_in_optimizer(engine, engine.flat.parameters, fit, sum(map(len, steps.plan)), flat=False)
        module.configure_optimizers = lambda: optimizer  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name in ("training_step", "configure_optimizers"):
            module.__dict__.pop(name, None)


def _configure_for_rounds(module: LightningModule, rounds: int) -> Any:
    """The result of configure_optimizers, for as many fits as its schedules cover."""
    loop = module.trainer.fit_loop
    epochs = loop.max_epochs
    loop.max_epochs = (epochs or 0) * rounds
    try:
        return module_optimizer(module)[0]
    finally:
        loop.max_epochs = epochs


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning announces devices at every fit."""
    with ExitStack() as quiet:
        for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
            quiet.enter_context(silence_logger(name, logging.ERROR))
        yield
