"""What every engine has: the module as a fit needs it, the order of its batches, and what its fits cost."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedbench.config import TrainConfig
from fedbench.engine.fit import AMOUNT, Amount, Batches, Fit, Move, Paired
from fedbench.errors import ConfigError
from fedbench.module import seeds
from fedbench.module.flat import FlatModule
from fedbench.module.hooks import CHANGE_BATCHES, Hooks, overrides
from fedbench.module.masks import holds_one
from fedbench.module.weights import Weights

BatchPlan = list[list[Tensor]]
"""Places of every batch, epoch by epoch."""


class Ledger:
    """What the fits of a client cost and said.

    steps: of gradients; losses: their sum, where they are known (`known` of them); own_rate: the module's own optimiser
    made steps.
    """

    def __init__(self, device: torch.device) -> None:
        self.losses = torch.zeros((), dtype=torch.float64, device=device)
        self.clear()

    def clear(self) -> None:
        """Begin a new account."""
        self.losses.zero_()
        self.steps, self.known, self.own_rate = 0, 0, False
        self.logged: dict[str, float] = {}

    def add(self, loss: Tensor) -> None:
        """Count a gradient step with this loss."""
        self.note(loss)
        self.steps += 1

    def note(self, loss: Tensor) -> None:
        """Take a loss, one number, which stays on its device."""
        self.losses.add_(loss.detach().reshape(()))
        self.known += 1

    @property
    def loss(self) -> float | None:
        """Mean training loss over the gradient steps; None where it is unknown."""
        return float(self.losses) / self.known if self.known else None


class Engine:
    """Trains a flat module, one fit after another. An engine of its own says in `run` how a fit is done.

    hooks: those of the module, where no Trainer calls them; optimizer: module, sgd, adam or adamw (`train.optimizer`,
    resolved); rounds: of the run. ledger: where the next fit is counted.
    """

    def __init__(
        self, flat: FlatModule, train: TrainConfig, hooks: Hooks | None, optimizer: str = "sgd", rounds: int = 1
    ) -> None:
        self.flat, self.train, self.hooks, self.optimizer, self.rounds = flat, train, hooks, optimizer, rounds
        self.ledger = Ledger(flat.device)
        self.idle_optimizers: dict[Any, Any] = {}
        self._batchnorms = {n: m for n, m in flat.module.named_modules() if isinstance(m, _BatchNorm)}

    def fit(self, fit: Fit) -> Weights:
        """The trained weights."""
        if fit.move is not None and not holds_one(fit.move.mask):
            return fit.start.clone()
        return self._fit(fit)

    def _fit(self, fit: Fit) -> Weights:
        with self.entered(fit) as plan:
            self.run(fit, plan)
        self.flat.check()
        return self.flat.weights()

    def run(self, fit: Fit, plan: BatchPlan) -> None:
        """Every epoch and batch of a fit, whose module is as it needs to be."""
        raise NotImplementedError

    @contextmanager
    def entered(self, fit: Fit) -> Iterator[BatchPlan]:
        """The module as a fit needs it: numbers, modes, random streams; with the places of all batches."""
        self.flat.load(fit.start)
        with self.flat.trainable(None if fit.move is None else fit.move.mask), self.in_train_mode(fit):
            plan = self.plan(fit)
            seeds.seed_everything(*fit.data.key, fit.stream, *([fit.amount.after] if fit.amount.after else []))
            yield plan

    def training(self, fit: Fit) -> AbstractContextManager[Any]:
        """A fit whose steps the caller makes. Raises ConfigError where the engine makes them all."""
        raise ConfigError(
            f"train.engine = {self.train.engine}: this method makes steps of its own, which lightning.Trainer does not "
            "know; leave it out"
        )

    def plan(self, fit: Fit) -> BatchPlan:
        """Places of every batch, epoch by epoch, drawn before the loop from the data's key and the stream."""
        amount = fit.amount
        epochs, steps, after = amount.epochs, amount.steps, amount.after
        if epochs is None and steps is None:
            epochs, steps = self.train.epochs, self.train.steps
        stream = self.orders(fit.data, fit.stream, self.train.batch_size, amount)
        if steps is None:
            return [next(stream) for _ in range(after + (epochs or 0))][after:]
        plan: BatchPlan = []
        while steps > 0:
            batches = next(stream)
            plan.append(batches[after : after + steps])
            after, steps = max(0, after - len(batches)), steps - len(plan[-1])
        return [epoch for epoch in plan if epoch]

    def orders(
        self, data: Batches, stream: str, batch_size: int | str, amount: Amount = AMOUNT
    ) -> Iterator[list[Tensor]]:
        """Endless epochs of places. A batch of one is dropped, too, where BatchNorm runs in train mode."""
        count = len(data)
        least = max(amount.min_batch, 2 if any(norm.training for norm in self._batchnorms.values()) else 1)
        size = count if batch_size == "full" else int(batch_size)
        if min(count, size) < least:
            raise ConfigError(
                f"batches of {min(count, size)} image(s) from {count}: this model trains on {least} or more at a time"
            )
        draw = seeds.generator(*data.key, stream, "order")
        shuffle = self.train.shuffle if amount.shuffle is None else amount.shuffle
        while True:
            order = torch.randperm(count, generator=draw) if shuffle else torch.arange(count)
            yield [batch for batch in order.to(self.flat.device).split(size) if len(batch) >= least]

    def training_data(self, fit: Fit) -> Batches:
        """The data as a fit sees them: where they can be augmented, with draws named by their key and the stream."""
        data = fit.data.first if isinstance(fit.data, Paired) else fit.data
        if getattr(data, "augmentation", None) is None:
            return data
        view: Batches = data.augmented(seeds.generator(*data.key, fit.stream, "augment"))  # type: ignore[attr-defined]
        return view

    def second_batches(self, fit: Fit) -> Iterator[tuple[Tensor, Tensor]] | None:
        """The second of paired data, batch by batch and without end."""
        data = fit.data
        if not isinstance(data, Paired):
            return None
        orders = self.orders(data.second, data.stream, data.size, Amount(min_batch=fit.amount.min_batch))
        return (data.second.batch(index) for epoch in orders for index in epoch)

    def changes_batches(self, data: Batches) -> bool:
        """Whether the steps of a fit may see other images than the data's: augmented ones, or changed by hooks."""
        augments = getattr(data, "augmentation", None) is not None
        return augments or any(overrides(self.flat.module, hook) for hook in CHANGE_BATCHES)

    @contextmanager
    def in_train_mode(self, fit: Fit) -> Iterator[None]:
        """Train mode, but for modules that are frozen as a whole, and BatchNorm of data of one sample."""
        move, data = fit.move, fit.data
        self.flat.module.train()
        if move is not None and move.frozen == "norm_eval":
            for name, norm in self._batchnorms.items():
                norm.training = any(self._moving(name, move))
        elif move is not None and move.frozen == "eval":
            for name, module in self.flat.module.named_modules():
                module.training = all(self._moving(name, move))
        if len(data) == 1 or (isinstance(data, Paired) and len(data.second) == 1):
            for norm in self._batchnorms.values():
                norm.eval()
        try:
            yield
        finally:
            self.flat.module.eval()

    def _moving(self, module_name: str, move: Move) -> list[bool]:
        """For every tensor of a submodule whether it may move; one without any goes with what is around it."""
        under = module_name + "." if module_name else ""
        own = [s for s in self.flat.layout.params if s.name.startswith(under)]
        if not own and module_name:
            return self._moving(module_name.rpartition(".")[0], move)
        return [holds_one(move.mask[s.start : s.stop]) for s in own]
