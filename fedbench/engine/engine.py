"""The base of all engines: prepares the module for a fit, orders its batches and counts its cost."""

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import ref

import lightning
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedbench.config import TrainConfig
from fedbench.config.words import plural
from fedbench.engine.fit import AMOUNT, Amount, Batches, Fit, Move, PairedBatches
from fedbench.errors import ConfigError
from fedbench.module import seeds
from fedbench.module.flat import FlatModule
from fedbench.module.hooks import CHANGE_BATCHES, Hooks, overrides
from fedbench.module.masks import holds_one
from fedbench.module.weights import Weights

LIGHTNING = str(Path(lightning.__file__).parent)
BatchPlan = list[list[Tensor]]
"""Places of every batch, epoch by epoch."""


class Ledger:
    """Cost and losses of the fits of a client.

    steps: gradient steps; losses: sum of `loss_count` losses; own_rate: whether the module's own optimiser made steps.
    """

    def __init__(self, device: torch.device) -> None:
        self.losses = torch.zeros((), dtype=torch.float64, device=device)
        self.loss_count = 0
        self.clear()

    def clear(self) -> None:
        """Starts a new count."""
        if self.loss_count:
            self.losses.zero_()
        self._loss: float | None = None
        self.steps, self.loss_count, self.own_rate = 0, 0, False
        self.logged: dict[str, float] = {}
        self._finite: list[tuple[ref[Tensor], int]] = []

    def add(self, loss: Tensor) -> None:
        """Counts a gradient step with this loss."""
        self.note(loss)
        self.steps += 1

    def note(self, loss: Tensor) -> None:
        """Adds a loss, one number, which stays on its device."""
        self.losses.add_(loss.detach().reshape(()))
        self.loss_count, self._loss = self.loss_count + 1, None

    def take(self, total: float, steps: int, logged: dict[str, float]) -> None:
        """Counts steps, all with a known loss. total: the sum of all losses, which `losses` holds already."""
        self.steps, self.loss_count = self.steps + steps, self.loss_count + steps
        self._loss = total / self.loss_count if self.loss_count else None
        self.logged.update(logged)

    def note_finite(self, weights: Weights) -> None:
        """Notes that the parameters are finite, so that nobody has to wait for the device to know it."""
        self._finite.append((ref(weights.params), weights.params._version))

    def is_finite(self, weights: Weights) -> bool:
        """Whether every parameter is finite and no buffer NaN."""
        params = weights.params
        if any(known() is params and version == params._version for known, version in self._finite):
            return not (weights.buffers.numel() and bool(weights.buffers.isnan().any()))
        return weights.is_finite()

    @property
    def loss(self) -> float | None:
        """Mean training loss over the gradient steps; None if it is unknown. Read from the device once."""
        if self._loss is None and self.loss_count:
            self._loss = float(self.losses) / self.loss_count
        return self._loss


def first_step(plan: BatchPlan) -> BatchPlan:
    """The first batch of a plan."""
    return [epoch[:1] for epoch in plan[:1]]


@contextmanager
def plain_modes(device: torch.device) -> Iterator[None]:
    """PyTorch's modes as at the start of a thread."""
    before = torch.is_autocast_enabled(device.type)
    torch.set_autocast_enabled(device.type, False)  # `torch.autocast` would keep its cache of weights between steps
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_autocast_enabled(device.type, before)


class Engine(ABC):
    """Trains a flat module, one fit after another. Subclasses implement a fit in `run`.

    hooks: the module's hooks if no Trainer calls them; optimizer: module, sgd, adam or adamw (`train.optimizer`,
    resolved); rounds: of the run; uses_rounds: whether a fit depends on their number. ledger: counts the next fit.
    warns_itself: whether every fit brings warnings of the engine's own.
    """

    warns_itself = False

    def __init__(
        self, flat: FlatModule, train: TrainConfig, hooks: Hooks | None, optimizer: str = "sgd", rounds: int = 1
    ) -> None:
        self.flat, self.train, self.hooks, self.optimizer, self.rounds = flat, train, hooks, optimizer, rounds
        self.ledger, self.uses_rounds = Ledger(flat.device), False
        self.warned: dict[str, str] = {}  # the first text of each warning of a fit, by its text without numbers
        self.has_fitted = False
        if hooks:
            hooks.context.update(accumulate_grad_batches=train.accumulate)
        self.idle_optimizers: dict[Any, Any] = {}
        self._batchnorms = {n: m for n, m in flat.module.named_modules() if isinstance(m, _BatchNorm)}

    def fit(self, fit: Fit) -> Weights:
        """The trained weights, the same whether it is called within `torch.no_grad`, autocast or inference mode."""
        if fit.move is not None and not holds_one(fit.move.mask):
            return fit.start.clone()
        with plain_modes(self.flat.device):
            return self._fit(fit)

    def _fit(self, fit: Fit) -> Weights:
        with self.prepare(fit) as plan, self._noting_warnings():
            self.run(fit, plan)
        self.flat.check()
        return self.flat.weights()

    def _noting_warnings(self) -> AbstractContextManager[None]:
        """Notes the warnings of the first fit, and of every fit if the engine warns by itself."""
        noting = self.warns_itself or not self.has_fitted
        self.has_fitted = True
        return self.noted_warnings() if noting else nullcontext()

    @contextmanager
    def noted_warnings(self) -> Iterator[None]:
        """Shows each warning of a fit once, and notes it for the report. Lightning's own are about its Trainer."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield
        for warning in caught:
            text = str(warning.message).partition("\n")[0].partition(" (Triggered internally")[0]
            kind = re.sub(r"\d+", "#", text)
            if warning.filename.startswith(LIGHTNING) or kind in self.warned:
                continue
            if issubclass(warning.category, UserWarning):
                self.warned[kind] = text
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    @abstractmethod
    def run(self, fit: Fit, plan: BatchPlan) -> None:
        """Runs every epoch and batch of a fit on the prepared module."""

    @contextmanager
    def prepare(self, fit: Fit) -> Iterator[BatchPlan]:
        """Prepares the module for a fit (weights, modes, random streams); yields the places of all batches."""
        self.flat.forget()
        self.flat.load(fit.start)
        with self.flat.trainable(None if fit.move is None else fit.move.mask), self.in_train_mode(fit):
            plan = self.plan(fit)
            seeds.seed_everything(*fit.data.key, fit.stream, *([fit.amount.after] if fit.amount.after else []))
            yield plan

    def training(self, fit: Fit) -> AbstractContextManager[Any]:
        """A fit whose steps the caller takes. Raises ConfigError if the engine takes them all."""
        raise ConfigError(
            f"train.engine = {self.train.engine}: this method makes steps of its own, which lightning.Trainer cannot "
            "run; leave it out"
        )

    def plan(self, fit: Fit, device: torch.device | None = None) -> BatchPlan:
        """Places of every batch, epoch by epoch, drawn before the loop by the data's key and the stream.

        device: of the places; by default that of the module.
        """
        (epochs, steps), after = fit.amount.length(self.train), fit.amount.after
        stream = self.orders(fit.data, fit.stream, self.train.batch_size, fit.amount, device)
        if steps is None:
            return [next(stream) for _ in range(after + epochs)][after:]
        plan: BatchPlan = []
        while steps > 0:
            batches = next(stream)
            plan.append(batches[after : after + steps])
            after, steps = max(0, after - len(batches)), steps - len(plan[-1])
        return [epoch for epoch in plan if epoch]

    def plan_to_run(self, fit: Fit, device: torch.device | None = None) -> BatchPlan:
        """The places of the batches that are run: of a trial the first one."""
        plan = self.plan(fit, device)
        return first_step(plan) if fit.amount.trial else plan

    def orders(
        self,
        data: Batches,
        stream: str,
        batch_size: int | str,
        amount: Amount = AMOUNT,
        device: torch.device | None = None,
    ) -> Iterator[list[Tensor]]:
        """Endless epochs of places. A batch of one is also dropped if BatchNorm runs in train mode."""
        count = len(data)
        least = max(amount.min_batch, 2 if any(norm.training for norm in self._batchnorms.values()) else 1)
        size = count if batch_size == "full" else int(batch_size)
        if min(count, size) < least:
            raise ConfigError(
                f"batches of {plural(min(count, size), 'sample')} from {count}: this model trains on {least} or more "
                "at a time"
            )
        enough = not count % size or count % size >= least  # images of the last batch
        draw = seeds.generator(*data.key, stream, "order")
        shuffle = self.train.shuffle if amount.shuffle is None else amount.shuffle
        while True:
            order = torch.randperm(count, generator=draw) if shuffle else torch.arange(count)
            batches = order.to(device or self.flat.device).split(size)
            yield [*(batches if enough else batches[:-1])]

    def training_data(self, fit: Fit) -> Batches:
        """The data of a fit: augmented if possible, with random draws by their key and the stream."""
        data = fit.data.first if isinstance(fit.data, PairedBatches) else fit.data
        if getattr(data, "augmentation", None) is None:
            return data
        view: Batches = data.with_augmentation(seeds.generator(*data.key, fit.stream, "augment"))  # type: ignore[attr-defined]
        return view

    def second_places(self, fit: Fit, device: torch.device | None = None) -> Iterator[Tensor] | None:
        """Endless places of batches of the second of paired data."""
        data = fit.data
        if not isinstance(data, PairedBatches):
            return None
        orders = self.orders(data.second, data.stream, data.size, Amount(min_batch=fit.amount.min_batch), device)
        return chain.from_iterable(orders)

    def second_batches(self, fit: Fit) -> Iterator[tuple[Tensor, Tensor]] | None:
        """Endless batches of the second of paired data."""
        data, places = fit.data, self.second_places(fit)
        return map(data.second.batch, places) if isinstance(data, PairedBatches) and places is not None else None

    def changes_batches(self, data: Batches) -> bool:
        """Whether the steps of a fit may see changed images: augmented, or changed by hooks."""
        augments = getattr(data, "augmentation", None) is not None
        return augments or any(overrides(self.flat.module, hook) for hook in CHANGE_BATCHES)

    @contextmanager
    def in_train_mode(self, fit: Fit) -> Iterator[None]:
        """The modes of the module as built, except for wholly frozen parts, and for BatchNorm on data of one sample."""
        move = fit.move
        self.flat.restore_modes()
        if move is not None and move.frozen == "norm_eval":
            for name, norm in self._batchnorms.items():
                norm.training &= any(self._moving(name, move))
        elif move is not None and move.frozen == "eval":
            for name, module in self.flat.module.named_modules():
                module.training &= all(self._moving(name, move))
        if fit.has_single_sample:
            for norm in self._batchnorms.values():
                norm.eval()
        try:
            yield
        finally:
            self.flat.module.eval()

    def _moving(self, module_name: str, move: Move) -> list[bool]:
        """Whether each tensor of a submodule may move; a submodule without tensors follows its parent."""
        under = module_name + "." if module_name else ""
        slots = [s for s in self.flat.layout.params if s.name.startswith(under)]
        if not slots and module_name:
            return self._moving(module_name.rpartition(".")[0], move)
        return [holds_one(move.mask[s.place]) for s in slots]
