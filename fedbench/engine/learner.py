"""The learner: one LightningModule on flat vectors, its evaluator, and the engine that trains it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from lightning import LightningModule
from torch import nn

from fedbench.config import TrainConfig
from fedbench.engine.compiled import Compiled
from fedbench.engine.engine import Engine, Ledger
from fedbench.engine.evaluator import Evaluator
from fedbench.engine.fit import AMOUNT, Fit
from fedbench.engine.graph import Graph
from fedbench.engine.loop import Loop, Training
from fedbench.engine.module_optimizer import OptimizerFacts, try_optimizer
from fedbench.engine.private_loop import PrivateLoop, PrivateSteps, refuse_method
from fedbench.engine.row_engine import RowEngine
from fedbench.engine.trainer import TrainerEngine
from fedbench.errors import ConfigError, as_config_error
from fedbench.models.state_dicts import load_state_dict
from fedbench.module.flat import FlatModule
from fedbench.module.hooks import Hooks, overrides
from fedbench.module.layout import Layout
from fedbench.module.weights import Weights
from fedbench.tasks import Task, load

ENGINES: dict[str, type[Engine]] = {"loop": Loop, "compiled": Compiled, "graph": Graph, "trainer": TrainerEngine}


class Learner:
    """Training and evaluation of a method on a host. Raises ConfigError for unsupported settings.

    head, adapt, copies: see `FlatModule`; weights: a file of start weights; optimizer, rounds: see `Engine`; task,
    evaluate_batch, by_batches: see `Evaluator`; private: how steps are made private (privacy.level = sample).
    schedules, optimizer_reevaluates, left_out: see `OptimizerFacts`.
    """

    def __init__(
        self,
        module: LightningModule,
        train: TrainConfig,
        *,
        optimizer: str = "sgd",
        rounds: int = 1,
        head: str | None = None,
        weights: Path | None = None,
        adapt: Callable[[nn.Module, Layout], None] | None = None,
        copies: Mapping[str, str | None] = MappingProxyType({}),
        device: str | torch.device = "cpu",
        task: Task | None = None,
        evaluate_batch: int = 500,
        by_batches: bool = False,
        private: PrivateSteps | None = None,
    ) -> None:
        hooks = Hooks(module) if train.engine != "trainer" else None
        if hooks is not None:
            hooks.context.update(max_epochs=train.epochs or 1)
        with as_config_error(f"model {type(module).__name__}: setup fails"):
            if overrides(module, "setup"):
                module.setup("fit")
            if overrides(module, "configure_model"):
                module.configure_model()
        if weights:
            load_state_dict(module, weights)
        self.train, self.task = train, task or load("classification")
        self.flat = flat = FlatModule(module, torch.device(device), train.precision, head, adapt, copies)
        self.evaluator = evaluator = Evaluator(flat, self.task, hooks, evaluate_batch, by_batches)
        given = flat, train, hooks, optimizer, rounds
        if private is None:
            self.engine = ENGINES[engine_on(flat.device, train.engine)](*given)
        else:
            self.engine = PrivateLoop(*given, private=private)
        self.row_engine = self.engine if isinstance(self.engine, RowEngine) else None
        facts = try_optimizer(self.engine) if optimizer == "module" else OptimizerFacts()
        self.schedules, self.optimizer_reevaluates, self.left_out = (
            facts.schedules,
            facts.optimizer_reevaluates,
            facts.left_out,
        )
        # The names that methods use.
        self.module, self.layout, self.device, self.dtype = flat.module, flat.layout, flat.device, flat.dtype
        self.initial, self.preserve, self.redraw = flat.initial, flat.preserve, flat.redraw
        self.evaluate, self.loss, self.module_metrics = evaluator.evaluate, evaluator.loss, evaluator.module_metrics
        self.logits, self.features, self.forward_order = evaluator.logits, evaluator.features, evaluator.forward_order
        self.gradient, self.full_gradient = evaluator.gradient, evaluator.full_gradient
        self.squared_gradients = evaluator.squared_gradients
        if private is not None:
            refuse = partial(_refuse, private.method)
            self.loss = self.gradient = self.full_gradient = self.squared_gradients = refuse
        self.orders, self.changes_batches = self.engine.orders, self.engine.changes_batches

    @property
    def ledger(self) -> Ledger:
        """The ledger of the next fits."""
        return self.engine.ledger

    def fit(self, fit: Fit) -> Weights:
        """The trained weights."""
        return self.engine.fit(fit)

    def training(self, fit: Fit) -> AbstractContextManager[Training]:
        """A fit whose steps the caller takes, batch by batch."""
        return self.engine.training(fit)

    def refuse_part(self, samples: int, of: int) -> None:
        """Raises ConfigError for a private fit on other samples than all of a client's: epsilon counts their rate."""
        if isinstance(self.engine, PrivateLoop) and samples != of:
            raise ConfigError(
                f"privacy.level = sample: {self.engine.private.method} fits on {samples} of a client's {of} samples, "
                "so that each is in a batch at another rate than epsilon counts; fit on all, or set privacy.level = "
                "client"
            )

    def remarks(self) -> list[str]:
        """What is to be said of the model after it ran."""
        name = f"model {type(self.module).__name__}"
        lines = [f"{name}: a warning in training: {text}" for text in self.engine.warned.values()]
        trained = sorted(self.flat.forgotten.keys() & self.flat.loose)
        changed = sorted(self.flat.forgotten.keys() - self.flat.loose)
        remedies = (
            (trained, "a weight that is trained is a parameter (torch.nn.Parameter)"),
            (changed, "what a client's model needs later belongs in a buffer (self.register_buffer)"),
        )
        return lines + [
            f"{name}: its code changes {', '.join(f'self.{key}' for key in names)}, which stays with no client: every "
            f"fit and evaluation begins with the value of the constructor; {remedy}"
            for names, remedy in remedies
            if names
        ]

    def steps_of(self, samples: int) -> int:
        """Gradient steps of one ordinary fit on `samples` samples."""
        return AMOUNT.steps_on(samples, self.train)


def _refuse(method: str, *given: Any, **more: Any) -> NoReturn:
    refuse_method(method, "takes losses or gradients of a client's samples beside its steps")


def engine_on(device: torch.device, engine: str) -> str:
    """The engine of `train.engine` on a device: graphs need a GPU, and the driver, which never trains, has none."""
    if engine == "compiled":
        return "compiled" if device.type == "cpu" else "graph"
    if engine in ("auto", "graph"):
        return "graph" if device.type == "cuda" else "loop"
    return engine
