"""A model that is checked: its learner, its clients' data, and the same batches through plain Lightning."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor

from fedbench.config import Config, TrainConfig
from fedbench.data.partitions import Partition
from fedbench.engine.engine import BatchPlan
from fedbench.engine.fit import Amount, Fit
from fedbench.engine.learner import Learner
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.models.compiled import unwrap
from fedbench.module import seeds
from fedbench.module.hooks import LoopContext, overrides
from fedbench.module.layout import Layout
from fedbench.module.logs import Logs
from fedbench.module.weights import Weights
from fedbench.runtime.build import build_learner, build_model
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.resolved import ResolvedRun
from fedbench.silence import silence_logger

STREAM = "check"
CLIENTS = 4


@dataclass(frozen=True)
class Run:
    """A run of a model that is resolved and tried."""

    resolved: ResolvedRun
    partition: Partition
    engine: str
    why: str


class ModelFits:
    """A model on data, with clients that train it. config: with the sections model and, if given, data.

    most: gradient steps of a fit; None: an epoch.
    """

    def __init__(self, config: Config, most: int | None = None) -> None:
        self.given, self.most = config, most

    @cached_property
    def run(self) -> Run:
        """Raises ConfigError if no engine runs the model."""
        try:
            return self._run("auto", "fedbench's own loop takes it, and CUDA graphs on a GPU")
        except ConfigError as error:
            if "--train.engine trainer" not in str(error):
                raise
            return self._run("trainer", str(error).partition(": use --train.engine trainer")[0])

    def _run(self, engine: str, why: str) -> Run:
        keys = self.given.model_dump(include={"model", "data", "train", "evaluate"}, exclude_unset=True)
        keys = {"partition": {"name": "iid", "clients": CLIENTS}, **keys}
        # What fedbench adds to a Trainer, or does otherwise at the end of an epoch, says nothing of the model.
        keys["train"] = {**keys.get("train", {}), "engine": engine, "epochs": 1, "lr_scale": 1.0, "accumulate": 1}
        run = resolve(Config(**keys, rounds=1, checkpoint={"every": 0}, resources={"hosts": 0, "gpus_per_host": 0}))
        dealt = check_run(run)
        return Run(run, dealt[run.seed], engine, why)

    @cached_property
    def learner(self) -> Learner:
        return build_learner(self.run.resolved, self.run.resolved.seed)

    @property
    def layout(self) -> Layout:
        return self.learner.layout

    @cached_property
    def data(self) -> ClientData:
        run = self.run.resolved
        return ClientData(run.config, run.dataset, self.run.partition, self.learner.device, self.learner.dtype)

    def client(self, number: int, part: str = "train") -> Any:
        """The samples of a client."""
        return self.data.split([number], part, (self.run.resolved.seed, number, 1))

    def fit(self, client: int, steps: int | None = None) -> Weights:
        """The weights after one epoch, or so many steps, by fedbench's engine."""
        return self.learner.fit(self._fit(client, steps))

    def _fit(self, client: int, steps: int | None) -> Fit:
        steps = steps or self.most
        amount = Amount() if steps is None else Amount(steps=steps)
        return Fit(self.learner.initial(), self.client(client), STREAM, amount)

    def plan(self, client: int, steps: int | None = None) -> BatchPlan:
        """The places of the batches of this fit."""
        fit = self._fit(client, steps)
        with self.learner.engine.in_train_mode(fit):
            return self.learner.engine.plan(fit)

    def module(self) -> LightningModule:
        """A new module with the start weights, as its author's code makes it. Raises ConfigError."""
        run = self.run.resolved
        with seeds.preserved_streams():
            seeds.seed_everything(run.seed, "model")
            module = build_model(run)
        self._build_in_hooks(module)
        unwrap(module)
        self.load(module, self.learner.initial())
        return module

    def _build_in_hooks(self, module: LightningModule) -> None:
        """Calls the hooks in which a module may build itself, once: a Trainer's call would draw new weights."""
        context = LoopContext(Logs())
        context.update(max_epochs=self.run.resolved.config.train.epochs or 1)
        module._trainer = context  # type: ignore[assignment]
        for hook, given in (("setup", ("fit",)), ("configure_model", ())):
            if overrides(module, hook):
                getattr(module, hook)(*given)
                setattr(module, hook, lambda *_, **__: None)
        module._trainer = None

    @torch.no_grad()
    def load(self, module: LightningModule, weights: Weights) -> None:
        """Put weights into a module."""
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        parts = ((self.layout.params, weights.params), (self.layout.buffers, weights.buffers))
        for slots, vector in (*parts, (self.layout.counters, weights.counters)):
            for slot in slots:
                state[slot.name].copy_(slot.view(vector))

    def in_lightning(self, client: int, steps: int | None = None) -> Tensor:
        """The parameters after the same batches through plain lightning.Trainer."""
        module, data, plan = self.module(), self.client(client), self.plan(client, steps)
        if self.run.resolved.config.train.optimizer != "module":
            module.configure_optimizers = self._plain_optimizer(module)  # type: ignore[method-assign]
        batches = [[data.batch(index) for index in epoch] for epoch in plan]
        with seeds.preserved_streams(), quiet():
            trainer = plain_trainer(len(plan), self.run.resolved.config.train)
            seeds.seed_everything(*data.key, STREAM)
            trainer.fit(module, Epochs(batches, trainer))
        names = dict(module.named_parameters())
        return torch.cat([names[slot.name].detach().flatten() for slot in self.layout.params])

    def _plain_optimizer(self, module: LightningModule) -> Any:
        train = self.run.resolved.config.train
        kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        rates = {"lr": train.lr, "weight_decay": train.weight_decay}
        kind = kinds.get(train.optimizer, torch.optim.SGD)
        more = {"momentum": train.momentum} if kind is torch.optim.SGD else {}
        return lambda: kind(module.parameters(), **rates, **more)


class Epochs:
    """Batches in a given order, those of the trainer's epoch."""

    def __init__(self, batches: list[list[Any]], trainer: Trainer) -> None:
        self._length, self._epochs, self._trainer = len(batches[0]) if batches else 0, batches, trainer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        epoch = self._trainer.current_epoch
        yield from self._epochs[epoch] if epoch < len(self._epochs) else []


def plain_trainer(epochs: int, train: TrainConfig) -> Trainer:
    """A Trainer as in a script, with these keys, which neither writes nor prints."""
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        plugins=[LightningEnvironment()],
        logger=DummyLogger(),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=train.clip_norm,
        precision=train.precision,
        limit_val_batches=0,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """A block without Lightning's lines and warnings, which say nothing about the model."""
    with ExitStack() as stack:
        for name in ("lightning.pytorch", "lightning.fabric"):
            stack.enter_context(silence_logger(name, logging.ERROR))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
