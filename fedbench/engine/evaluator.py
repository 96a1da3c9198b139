"""Evaluation of a model without training: outputs, scores, features, gradients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.fisher import SquaredGradients
from fedbench.engine.fit import Batches, LossFunction, Unlabelled
from fedbench.engine.losses import calls_of, outputs_of, prediction_loss
from fedbench.errors import ConfigError
from fedbench.models.compiled import without_compiler
from fedbench.module import seeds
from fedbench.module.flat import FlatModule
from fedbench.module.hooks import (
    TRANSFER,
    Hooks,
    LoopContext,
    as_in_testing,
    batch_after_transfer,
    overrides,
    takes_index,
    tested_by,
)
from fedbench.module.inputs import batch_for, inputs_of
from fedbench.module.logs import Logs
from fedbench.module.weights import Weights
from fedbench.tasks import Score, Task, mean_of


class Evaluator:
    """Forward passes and gradients of a flat module. No method changes a state, buffer, mode or random stream.

    task: scores the outputs; hooks: of the module, which logs nothing meanwhile; batch_size: samples of a forward
    pass; by_batches: whether scores are means of batch scores.
    """

    def __init__(
        self, flat: FlatModule, task: Task, hooks: Hooks | None = None, batch_size: int = 500, by_batches: bool = False
    ) -> None:
        self.flat, self.task, self.batch_size, self.by_batches = flat, task, batch_size, by_batches
        self._hooks, self._silence = hooks, hooks.logs.silence if hooks else nullcontext
        self._context = hooks.context if hooks else LoopContext(Logs())
        self._transfers = any(overrides(flat.module, hook) for hook in TRANSFER)
        self._has_own_modes = any(
            (type(part).train, type(part).eval) != (nn.Module.train, nn.Module.eval) for part in flat.module.modules()
        )
        self._squares: SquaredGradients | None = None
        self._order: list[str] | None = None

    @contextmanager
    def evaluating(self, weights: Weights, *key: int | str) -> Iterator[None]:
        """The module in evaluation mode with these weights and its own torch stream."""
        self.flat.forget()
        self.flat.load(weights)
        training = [part for part in self.flat.module.modules() if part.training]
        if training or self._has_own_modes:
            self.flat.module.eval()
        try:
            with seeds.preserved_torch_stream(), self._silence(), as_in_testing(self.flat.module, self._context):
                seeds.seed_torch(seeds.derive(*key, "evaluate"))
                yield
        finally:
            for part in training:
                part.training = True

    def logits(self, weights: Weights, data: Batches) -> Tensor:
        """Outputs `[n, C]`, in the order of the data: class scores, or other outputs of the task."""
        return torch.cat([logits for logits, _ in self._predictions(weights, data)])

    def features(self, weights: Weights, data: Batches, name: str | None = None) -> Tensor:
        """Inputs `[n, d]` of a submodule, by default of the head. Raises ConfigError if no head is declared."""
        with calls_of(self.flat.head if name is None else self.flat.module.get_submodule(name)) as calls:
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
        kept: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Score:
        """Score of a predictor: weights, or a function that gives outputs `[n, C]` for data without targets.

        groups: samples by name, bool `[n]`; the primary metric of a group is METRIC/NAME, always a mean over samples.
        kept: gets the outputs and targets of all batches.
        """
        if isinstance(predictor, Weights):
            predictions = self._predictions(predictor, data)
        else:
            targets = data.batch(torch.arange(len(data), device=self.flat.device))[1]
            size = self.batch_size
            predictions = list(zip(predictor(Unlabelled(data)).split(size), targets.split(size), strict=True))
        if kept is not None:
            kept += predictions
        score = self.task.score_all(predictions, self.flat.dtype, self.by_batches)
        if groups:
            outputs, targets = (torch.cat(parts) for parts in zip(*predictions, strict=True))
            primary = self.task.primary.name
            for name, rows in groups.items():
                part = self.task.score_all([(outputs[rows], targets[rows])], self.flat.dtype)
                if primary in part:
                    score[f"{primary}/{name}"] = part[primary]
        return score

    def module_metrics(self, weights: Weights, data: Batches) -> Score:
        """What the module logs in its test_step, else its validation_step, on the data, as `test_step/NAME`.

        Values are those of an epoch: by default means weighted by batch sizes. Raises ConfigError if the module has no
        such step.
        """
        module, hooks = self.flat.module, self._hooks
        step = tested_by(module)
        if step is None or hooks is None:
            raise ConfigError(
                f"evaluate.module_metrics = true: model {type(module).__name__} has neither test_step nor "
                "validation_step, or train.engine = trainer runs it; leave it out"
            )
        indexed, stage = takes_index(module, step), step.removesuffix("_step")
        hooks.reset_metrics()
        with (
            self.evaluating(weights, *data.key),
            torch.no_grad(),
            self.flat.autocast(),
            hooks.logs.capture() as values,
        ):
            getattr(module, f"on_{stage}_epoch_start")()
            for number, index in enumerate(self._in_order(data, self.batch_size)):
                hooks.logs.batch_size = len(index)
                getattr(module, step)(batch_for(module, self.batch(data, index)), *([number] if indexed else []))
            getattr(module, f"on_{stage}_epoch_end")()
        hooks.reset_metrics()
        return {f"{step}/{name}": (value * len(data), len(data)) for name, value in values.items()}

    def _predictions(self, weights: Weights, data: Batches) -> list[tuple[Tensor, Tensor]]:
        predictions = []
        with self.evaluating(weights, *data.key), torch.no_grad(), self.flat.autocast():
            for index in self._in_order(data, self.batch_size):
                x, y = self.batch(data, index)
                predictions.append((outputs_of(self.flat.module(x)), y))
        return predictions

    def batch(self, data: Batches, index: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and targets at these places, after the module's transfer hooks."""
        batch = data.batch(index)
        return batch_after_transfer(self.flat.module, batch, self.flat.device) if self._transfers else batch

    def _loss_of(self, output: Any, targets: Tensor, reduction: str = "mean") -> Tensor:
        """The task's loss of forward's result."""
        return self.task.loss(outputs_of(output), targets, reduction)

    def _in_order(self, data: Batches, size: int) -> Sequence[Tensor]:
        """Places of all data, in chunks."""
        return places_in_chunks(len(data), size, self.flat.device)

    def gradient(
        self,
        weights: Weights,
        batch: tuple[Tensor, Tensor],
        loss: LossFunction | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Loss `[]` of one batch in evaluation mode and its gradient `[N]`. loss: default: the task's.

        mask: bool `[N]`; tensors wholly outside it cost nothing and get a gradient of 0.
        """
        loss = loss or prediction_loss(self.task)
        with self.evaluating(weights), self.flat.trainable(mask):
            with self.flat.autocast():
                value = loss(self.flat.module, batch, SimpleNamespace())
            moving = [p for p in self.flat.parameters if p.requires_grad]
            slopes = iter(torch.autograd.grad(value, moving, allow_unused=True, materialize_grads=True))
            parts = [next(slopes) if p.requires_grad else torch.zeros_like(p) for p in self.flat.parameters]
        return value.detach(), torch.cat([part.reshape(-1) for part in parts])

    def full_gradient(self, weights: Weights, data: Batches) -> Tensor:
        """Gradient `[N]` of the task's mean loss over all data in evaluation mode, float64."""
        total = torch.zeros_like(self.flat.w, dtype=torch.float64)
        for index in self._in_order(data, self.batch_size):
            total.add_(self.gradient(weights, self.batch(data, index))[1], alpha=len(index) / len(data))
        return total

    def squared_gradients(self, weights: Weights, data: Batches) -> Tensor:
        """Mean over the data of the squared gradient `[N]` of every sample's loss, float64.

        In evaluation mode; the diagonal of the empirical Fisher information at the true targets.
        """
        total, squares = torch.zeros_like(self.flat.w, dtype=torch.float64), self._squared_gradients(data)
        with self.evaluating(weights, *data.key), self.flat.autocast():
            for index in self._in_order(data, squares.at_once):
                for slot, part in zip(self.flat.layout.params, squares(*self.batch(data, index)), strict=True):
                    slot.view(total).add_(part)
        return total.div_(len(data))

    def _squared_gradients(self, data: Batches) -> SquaredGradients:
        """Made once, on noise, so that every host chooses the same method."""
        if self._squares is None:
            with self.evaluating(self.flat.initial()), self.flat.autocast():
                names = [slot.name for slot in self.flat.layout.params]
                self._squares = SquaredGradients(self.flat.module, names, self._loss_of, self._noise_like(data))
        return self._squares

    def forward_order(self, data: Batches) -> list[str]:
        """Dotted names of the module and all submodules in the order of a forward pass (`layer_order`).

        Found once, on noise, so that every host gets the same order.
        """
        if self._order is None:
            with self.flat.preserve(), self.evaluating(self.flat.initial()), torch.no_grad(), self.flat.autocast():
                self._order = layer_order(self.flat.module, self._noise_like(data)[0])
        return self._order

    def _noise_like(self, data: Batches) -> tuple[Tensor, Tensor]:
        """Two inputs and targets of the data's shapes: noise, or the first sample twice if it is not all floats."""
        first = torch.zeros(1, dtype=torch.int64, device=self.flat.device)
        x, y = (part.expand(2, *part.shape[1:]) for part in data.batch(first))
        if x.is_floating_point() and inputs_of(self.flat.module) is None:
            stream = torch.Generator().manual_seed(0)
            x = torch.randn(x.shape, dtype=self.flat.dtype, generator=stream).to(self.flat.device)
        return x, torch.zeros_like(y)


@lru_cache(256)
def places_in_chunks(count: int, size: int, device: torch.device) -> Sequence[Tensor]:
    """The places 0 to `count`, in chunks. They are read only: parts of one size share them."""
    return torch.arange(count, device=device).split(size)


def layer_order(module: nn.Module, x: Tensor) -> list[str]:
    """Dotted names of a module and all submodules, in the order in which `module(x)` first enters them.

    A submodule that is not entered, because its parent uses its parameters directly, follows its parent.
    """
    names = {child: name for name, child in module.named_modules()}
    places: dict[str, int] = {}

    def enter(child: nn.Module, inputs: Any) -> None:
        places.setdefault(names[child], len(places))

    handles = [child.register_forward_pre_hook(enter) for child in names]
    try:
        with without_compiler():
            module(x)
    finally:
        for handle in handles:
            handle.remove()
    return sorted(names.values(), key=lambda name: _place_of(name, places))


def _place_of(name: str, places: dict[str, int]) -> int:
    """The position of a module, or of the nearest enclosing one that has a position."""
    while name not in places:
        name = name.rpartition(".")[0]
    return places[name]
