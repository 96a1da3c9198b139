"""What can be asked of a model without training it. No verb changes a state, buffer, mode or random stream."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.engine.fisher import SquaredGradients
from fedbench.engine.fit import Batches, LossFunction
from fedbench.engine.losses import calls_of, outputs_of, prediction_loss
from fedbench.module import seeds
from fedbench.module.flat import FlatModule
from fedbench.module.hooks import Hooks, overrides
from fedbench.module.layout import Layout
from fedbench.module.masks import holds_one
from fedbench.module.order import entered_order
from fedbench.module.weights import Weights
from fedbench.tasks import Score, Task, load, mean_of

Adapt = Callable[[nn.Module, Layout], None]


class Looks(FlatModule):
    """A flat module that can be evaluated and differentiated.

    module: the user's LightningModule; head: dotted name of the classifier; adapt: changes the module, given its
    layout, before its parameters are counted; copies: of the model inside it (see `FlatModule`); task: what its outputs
    are judged by. Raises ConfigError for what cannot be honoured.
    """

    def __init__(
        self,
        module: LightningModule,
        train: TrainConfig,
        *,
        head: str | None = None,
        adapt: Adapt | None = None,
        copies: Mapping[str, str | None] = MappingProxyType({}),
        device: str | torch.device = "cpu",
        task: Task | None = None,
        evaluate_batch: int = 500,
        by_batches: bool = False,
    ) -> None:
        self.train, self.evaluate_batch, self.by_batches = train, evaluate_batch, by_batches
        self.task = task or load("classification")
        self.hooks = Hooks(module) if train.engine != "trainer" else None
        if overrides(module, "setup"):
            module.setup("fit")
        if overrides(module, "configure_model"):
            module.configure_model()
        dtype = torch.float64 if train.precision == "64-true" else torch.float32
        super().__init__(module, torch.device(device), dtype, head, adapt, copies)
        self._squares: SquaredGradients | None = None
        self._order: list[str] | None = None

    @property
    def head(self) -> nn.Module:
        """The module's classifier. Raises ConfigError where none is declared."""
        self.layout.mask("head")
        return self.module.get_submodule(self.layout.head_name or "")

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass in the run's precision."""
        if self.train.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    @contextmanager
    def _evaluating(self, weights: Weights, *key: int | str) -> Iterator[None]:
        """The module in evaluation mode with these weights and a torch stream of its own."""
        self.load(weights)
        modes = [(m, m.training) for m in self.module.modules() if m.training]
        self.module.eval()
        try:
            with seeds.preserved_torch_stream(), self.hooks.logs.silence() if self.hooks else nullcontext():
                seeds.seed_torch(seeds.derive(*key, "evaluate"))
                yield
        finally:
            for module, mode in modes:
                module.training = mode

    @contextmanager
    def aside(self) -> Iterator[Weights]:
        """For looks in the middle of a training, at the numbers that it gives: they and the random streams stay."""
        kept = self.weights()
        with seeds.preserved_streams():
            yield kept
        self.load(kept)

    @contextmanager
    def _trainable(self, mask: Tensor | None) -> Iterator[None]:
        """Tensors that are frozen as a whole need no gradient; whatever else user code freezes is freed at the end."""
        if mask is not None:
            for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
                parameter.requires_grad_(holds_one(mask[slot.start : slot.stop]))
        try:
            yield
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(True)
                parameter.grad = None

    def logits(self, weights: Weights, data: Batches) -> Tensor:
        """Outputs `[n, C]`, in the order of the data: class scores, or what else the task has."""
        return torch.cat([logits for logits, _ in self._predictions(weights, data)])

    def features(self, weights: Weights, data: Batches) -> Tensor:
        """Inputs of the head `[n, d]`. Raises ConfigError where no head is declared."""
        with calls_of(self.head) as calls:
            self._predictions(weights, data)
        return torch.cat([features for features, _ in calls])

    def loss(self, weights: Weights, data: Batches) -> float:
        """The task's mean loss over the data, summed in float64."""
        return mean_of(self.evaluate(weights, data), self.task.loss_metric)

    def evaluate(
        self,
        predictor: "Weights | Callable[[Batches], Tensor]",
        data: Batches,
        groups: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Score:
        """Score of a predictor: weights, or a function that gives outputs `[n, C]` for data.

        groups: samples by name, bool `[n]`; the primary metric over those of a group is called METRIC/NAME, and is a
        mean over samples always.
        """
        if isinstance(predictor, Weights):
            predictions = self._predictions(predictor, data)
        else:
            targets = data.batch(torch.arange(len(data), device=self.device))[1]
            size = self.evaluate_batch
            predictions = list(zip(predictor(data).split(size), targets.split(size), strict=True))
        score = self.task.scored(predictions, self.dtype, self.by_batches)
        if groups:
            outputs, targets = (torch.cat(parts) for parts in zip(*predictions, strict=True))
            primary = self.task.primary.name
            for name, own in groups.items():
                part = self.task.scored([(outputs[own], targets[own])], self.dtype)
                if primary in part:
                    score[f"{primary}/{name}"] = part[primary]
        return score

    def _predictions(self, weights: Weights, data: Batches) -> list[tuple[Tensor, Tensor]]:
        found = []
        with self._evaluating(weights, *data.key), torch.no_grad(), self.autocast():
            for index in self._in_order(data, self.evaluate_batch):
                x, y = data.batch(index)
                found.append((outputs_of(self.module(x)), y))
        return found

    def _loss_of(self, found: Any, targets: Tensor, reduction: str = "mean") -> Tensor:
        """The task's loss of what forward returned."""
        return self.task.loss(outputs_of(found), targets, reduction)

    def _in_order(self, data: Batches, size: int) -> Sequence[Tensor]:
        """Places of all data, so many at a time."""
        return torch.arange(len(data), device=self.device).split(size)

    def gradient(
        self,
        weights: Weights,
        batch: tuple[Tensor, Tensor],
        loss: LossFunction | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Loss `[]` of one batch in evaluation mode and its gradient `[N]`. loss: by default that of the task.

        mask: bool `[N]`; tensors that are wholly outside it cost nothing and get a gradient of 0.
        """
        loss = loss or prediction_loss(self.task)
        with self._evaluating(weights), self._trainable(mask):
            with self.autocast():
                value = loss(self.module, batch, SimpleNamespace())
            asked = [p for p in self.parameters if p.requires_grad]
            found = iter(torch.autograd.grad(value, asked, allow_unused=True, materialize_grads=True))
            parts = [next(found) if p.requires_grad else torch.zeros_like(p) for p in self.parameters]
        return value.detach(), torch.cat([part.reshape(-1) for part in parts])

    def full_gradient(self, weights: Weights, data: Batches) -> Tensor:
        """Gradient `[N]` of the task's mean loss over all data in evaluation mode, float64."""
        total = torch.zeros_like(self.w, dtype=torch.float64)
        for index in self._in_order(data, self.evaluate_batch):
            total.add_(self.gradient(weights, data.batch(index))[1], alpha=len(index) / len(data))
        return total

    def squared_gradients(self, weights: Weights, data: Batches) -> Tensor:
        """Mean over the data of the squared gradient `[N]` of every sample's loss, float64.

        In evaluation mode; the diagonal of the empirical Fisher information at the true targets.
        """
        total, squares = torch.zeros_like(self.w, dtype=torch.float64), self._squared_gradients(data)
        with self._evaluating(weights, *data.key), self.autocast():
            for index in self._in_order(data, squares.at_once):
                for slot, part in zip(self.layout.params, squares(*data.batch(index)), strict=True):
                    total[slot.start : slot.stop] += part.flatten()
        return total.div_(len(data))

    def _squared_gradients(self, data: Batches) -> SquaredGradients:
        """Made once, and on noise, so that every host takes the same way."""
        if self._squares is None:
            with self._evaluating(self.initial()), self.autocast():
                names = [slot.name for slot in self.layout.params]
                self._squares = SquaredGradients(self.module, names, self._loss_of, self._noise_like(data))
        return self._squares

    def forward_order(self, data: Batches) -> list[str]:
        """Dotted names of the module and all submodules as a forward pass enters them (`entered_order`).

        Found once, on noise, so that every host takes the same way.
        """
        if self._order is None:
            kept = self.weights()
            with self._evaluating(self.initial()), torch.no_grad(), self.autocast():
                self._order = entered_order(self.module, self._noise_like(data)[0])
            self.load(kept)
        return self._order

    def redrawn(self, weights: Weights, name: str, *key: int | str) -> Weights:
        """The weights with a submodule's parameters drawn anew by its own initialisation, from a stream of this key."""
        self.load(weights)
        with seeds.preserved_streams(), torch.no_grad():
            seeds.seed_everything(*key)
            for module in self.module.get_submodule(name).modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
        return self.weights()

    def _noise_like(self, data: Batches) -> tuple[Tensor, Tensor]:
        """Two inputs and targets of the data's shapes: noise, or zeros where only whole numbers are inputs."""
        x, y = (
            part.expand(2, *part.shape[1:]) for part in data.batch(torch.zeros(1, dtype=torch.int64).to(self.device))
        )
        if x.is_floating_point():
            stream = torch.Generator().manual_seed(0)
            x = torch.randn(x.shape, dtype=self.dtype, generator=stream).to(self.device)
        return x, torch.zeros_like(y)
