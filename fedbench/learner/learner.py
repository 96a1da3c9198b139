"""The learner: one LightningModule on flat vectors, and every training loop of every method."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import ceil
from types import SimpleNamespace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedbench.config import TrainConfig
from fedbench.errors import ConfigError
from fedbench.learner import loop, seeds, trainer
from fedbench.learner.layout import Layout
from fedbench.learner.optimizers import Stepper, make_stepper
from fedbench.learner.trainer import TrainerStepper
from fedbench.learner.weights import Weights

GradientEdit = Callable[[Tensor, Tensor, Any], None]
Loss = Callable[[Any, Any, Any], Tensor]


class Batches(Protocol):
    """What the learner asks of a client's data."""

    @property
    def key(self) -> tuple[int | str, ...]: ...

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Score:
    """Accuracy (share of correct images, or mean over batches), mean cross-entropy, number of images."""

    accuracy: float
    loss: float
    count: int


@dataclass
class Job:
    """One call of `fit`, resolved: what an engine runs."""

    data: Batches
    epochs: list[list[Tensor]]
    stepper: Stepper | TrainerStepper
    gradient: GradientEdit | None
    loss: Loss | None
    state: SimpleNamespace
    second: Iterator[tuple[Tensor, Tensor]] | None
    before_epoch: Callable[[int, Weights, SimpleNamespace], None] | None


@dataclass
class Ledger:
    """What the fits of a client cost and said since the last reset."""

    steps: int = 0
    loss_sum: float = 0.0
    logged: dict[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float | None:
        """Mean training loss over the gradient steps."""
        return self.loss_sum / self.steps if self.steps else None


class Learner:
    """Owns the module of a host. Its parameters and gradients are views of the flat tensors `w` and `g`.

    module: the user's LightningModule; optimizer: module, sgd, adam or adamw (`train.optimizer`, resolved);
    head: dotted name of the classifier. Raises ConfigError for what cannot be honoured.
    """

    def __init__(
        self,
        module: LightningModule,
        train: TrainConfig,
        *,
        optimizer: str = "sgd",
        head: str | None = None,
        device: str | torch.device = "cpu",
        evaluate_batch: int = 500,
        by_batches: bool = False,
    ) -> None:
        self.train, self.optimizer, self.device = train, optimizer, torch.device(device)
        self.dtype = torch.float64 if train.precision == "64-true" else torch.float32
        self.evaluate_batch, self.by_batches = evaluate_batch, by_batches
        self.module = module.to(device=self.device, dtype=self.dtype)
        self.layout = Layout.of(self.module, head)
        self.lr_factor = 1.0
        self.ledger = Ledger()
        self._batchnorms = [m for m in self.module.modules() if isinstance(m, _BatchNorm)]
        self._bind()
        self._initial = self.weights()
        self.hooks = loop.Hooks(self.module) if train.engine == "loop" else None

    # -- the flat vectors -------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Make parameters, gradients and float buffers views of flat tensors."""
        flat = lambda size: torch.zeros(size, dtype=self.dtype, device=self.device)  # noqa: E731
        self.w, self.g, self._b = flat(self.layout.size), flat(self.layout.size), flat(self.layout.buffer_size)
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        for slot, parameter in zip(self.layout.params, self._parameters, strict=True):
            self.w[slot.start : slot.stop] = parameter.data.reshape(-1)
            parameter.data = self.w[slot.start : slot.stop].view(slot.shape)
        self._attach_gradients()
        buffers = list(self.module.buffers())
        self._counters = [b for b in buffers if not b.is_floating_point()]
        for slot, buffer in zip(self.layout.buffers, (b for b in buffers if b.is_floating_point()), strict=True):
            self._b[slot.start : slot.stop] = buffer.data.reshape(-1)
            buffer.data = self._b[slot.start : slot.stop].view(slot.shape)

    def _attach_gradients(self) -> None:
        for slot, parameter in zip(self.layout.params, self._parameters, strict=True):
            parameter.grad = self.g[slot.start : slot.stop].view(slot.shape)

    def check_views(self) -> None:
        """Restore gradients that user code has set to None; refuse parameters that were moved elsewhere."""
        for slot, parameter in zip(self.layout.params, self._parameters, strict=True):
            if parameter.data_ptr() != self.w.data_ptr() + slot.start * self.w.element_size():
                raise ConfigError(
                    f"the model replaced the storage of parameter '{slot.name}' while training "
                    "(load_state_dict(assign=True), .to(...), a new Parameter): fedbench cannot follow that"
                )
            if parameter.grad is None or parameter.grad.data_ptr() != self.g.data_ptr() + slot.start * self.g.element_size():
                self._attach_gradients()
                return

    def initial(self) -> Weights:
        """The weights that the module was built with."""
        return self._initial.clone()

    def weights(self) -> Weights:
        """A copy of the module's present numbers."""
        counters = [c.reshape(-1).to(torch.int64) for c in self._counters]
        stacked = torch.cat(counters) if counters else torch.zeros(0, dtype=torch.int64)
        return Weights(self.w.clone(), self._b.clone(), stacked.cpu().clone())

    def load(self, weights: Weights) -> None:
        """Copy weights into the module."""
        self.w.copy_(weights.params)
        self._b.copy_(weights.buffers)
        for slot, counter in zip(self.layout.counters, self._counters, strict=True):
            counter.copy_(weights.counters[slot.start : slot.stop].view(slot.shape))

    def state_dict(self, weights: Weights) -> dict[str, Tensor]:
        """The weights as a state dict that plain PyTorch loads into the user's module."""
        self.load(weights)
        return {name: tensor.detach().clone().cpu() for name, tensor in self.module.state_dict().items()}

    # -- training ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        weights: Weights,
        data: Batches,
        *,
        purpose: str = "fit",
        epochs: int | None = None,
        steps: int | None = None,
        lr: float | None = None,
        batch_size: int | str | None = None,
        train_only: Tensor | None = None,
        freeze_norm: bool = False,
        gradient: GradientEdit | None = None,
        loss: Loss | None = None,
        state: dict[str, Tensor] | None = None,
        memory: dict[str, Any] | None = None,
        second: tuple[Batches, int, str] | None = None,
        before_epoch: Callable[[int, Weights, SimpleNamespace], None] | None = None,
    ) -> Weights:
        """Train from `weights` on `data` and return the trained weights; `weights` is not changed.

        purpose: names the random stream of this phase. epochs, steps, lr, batch_size: default to the run's `train.*`;
        steps beat epochs. train_only: bool `[N]`, the entries that may move (decay and momentum are masked too);
        freeze_norm: BatchNorm layers that are wholly frozen run in evaluation mode. gradient: a module-level function
        `(g, w, s)` that edits the gradient in place, elementwise over the last dimension, before decay and momentum;
        loss: a function `(net, batch, s) -> scalar`; both get `state` as attributes of `s`. memory: a dict that keeps
        the optimiser's state between calls. second: (data, batch size, purpose) of a second stream of batches, which
        `loss` receives as `(first, second)` and which never decides the number of steps. before_epoch: called with
        (epoch, weights, s) before every epoch; it may use the learner's other verbs and write to the tensors of `s`.
        """
        self.load(weights)
        plan = self._plan(data, purpose, epochs, steps, batch_size)
        job = Job(
            data=data,
            epochs=plan,
            stepper=make_stepper(self, lr, train_only, memory, plan),
            gradient=gradient,
            loss=loss,
            state=SimpleNamespace(**(state or {})),
            second=self._endless(*second) if second else None,
            before_epoch=before_epoch,
        )
        seeds.seed_everything(*data.key, purpose)
        with self._train_mode(train_only if freeze_norm else None, single=len(data) == 1):
            run = trainer.run if self.train.engine == "trainer" else loop.run
            run(self, job)
        self.check_views()
        if memory is not None:
            memory["optimizer"] = job.stepper.state()
        return self.weights()

    def _plan(
        self, data: Batches, purpose: str, epochs: int | None, steps: int | None, batch_size: int | str | None
    ) -> list[list[Tensor]]:
        """Index tensors of every batch, epoch by epoch, drawn before the loop from (seed, client, round, purpose)."""
        if epochs is None and steps is None:
            epochs, steps = self.train.epochs, self.train.steps
        stream = self._epochs(data, purpose, batch_size or self.train.batch_size)
        if steps is None:
            return [next(stream) for _ in range(epochs or 0)]
        plan: list[list[Tensor]] = []
        while (left := steps - sum(map(len, plan))) > 0:
            plan.append(next(stream)[:left])
        return plan

    def _epochs(self, data: Batches, purpose: str, batch_size: int | str) -> Iterator[list[Tensor]]:
        """Endless epochs of index tensors. A batch of one is dropped where BatchNorm would run in train mode."""
        count = len(data)
        size = count if batch_size == "full" else int(batch_size)
        stream = seeds.generator(*data.key, purpose, "order")
        while True:
            order = torch.randperm(count, generator=stream) if self.train.shuffle else torch.arange(count)
            batches = list(order.to(self.device).split(size))
            if self._batchnorms and count > 1:
                batches = [b for b in batches if len(b) > 1]
            yield batches

    def _endless(self, data: Batches, batch_size: int, purpose: str) -> Iterator[tuple[Tensor, Tensor]]:
        for epoch in self._epochs(data, purpose, batch_size):
            for index in epoch:
                yield data.batch(index)

    @contextmanager
    def _train_mode(self, frozen_outside: Tensor | None, single: bool) -> Iterator[None]:
        """Train mode, but for BatchNorm layers that are wholly frozen or would see one sample in all."""
        self.module.train()
        for name, child in self.module.named_modules():
            if isinstance(child, _BatchNorm) and (single or self._is_frozen(name, frozen_outside)):
                child.eval()
        try:
            yield
        finally:
            self.module.eval()

    def _is_frozen(self, module_name: str, train_only: Tensor | None) -> bool:
        if train_only is None:
            return False
        own = [s for s in self.layout.params if s.name.rpartition(".")[0] == module_name]
        return not any(bool(train_only[s.start : s.stop].any()) for s in own)

    def autocast(self):
        """The context of a forward pass in the run's precision."""
        if self.train.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    # -- the other verbs: they change no state, buffer or random stream ------------------------------------------------

    def gradient(self, weights: Weights, batch: tuple[Tensor, Tensor], loss: Loss | None = None, **state: Any) -> Tensor:
        """Gradient `[N]` of the loss of one batch in evaluation mode."""
        self.load(weights)
        self.module.eval()
        self.g.zero_()
        with self.autocast():
            value = loss(self.module, batch, SimpleNamespace(**state)) if loss else cross_entropy(self.module, batch)
        value.backward()
        return self.g.clone()

    def logits(self, weights: Weights, data: Batches) -> Tensor:
        """Class scores `[n, C]` in evaluation mode, in the order of the data."""
        return torch.cat([logits for logits, _ in self._predictions(weights, data)])

    def features(self, weights: Weights, data: Batches) -> Tensor:
        """Inputs of the head `[n, d]` in evaluation mode. Raises ConfigError where no head is declared."""
        self.layout.mask("head")
        caught: list[Tensor] = []
        head = self.module.get_submodule(self.layout.head_name or "")
        handle = head.register_forward_pre_hook(lambda _, args: caught.append(args[0].detach()))
        try:
            list(self._predictions(weights, data))
        finally:
            handle.remove()
        return torch.cat(caught)

    def loss(self, weights: Weights, data: Batches) -> float:
        """Mean cross-entropy over the data in evaluation mode, summed in float64."""
        return self.evaluate(weights, data).loss

    def evaluate(self, predictor: "Weights | Callable[[Batches], Tensor]", data: Batches) -> Score:
        """Score of a predictor: weights, or a function that gives class scores `[n, C]` for data."""
        if isinstance(predictor, Weights):
            return self._score(self._predictions(predictor, data))
        labels = data.batch(torch.arange(len(data), device=self.device))[1]
        size = self.evaluate_batch
        return self._score(zip(predictor(data).split(size), labels.split(size), strict=True))

    @torch.no_grad()
    def _predictions(self, weights: Weights, data: Batches) -> Iterator[tuple[Tensor, Tensor]]:
        self.load(weights)
        self.module.eval()
        for index in torch.arange(len(data), device=self.device).split(self.evaluate_batch):
            x, y = data.batch(index)
            with torch.no_grad(), self.autocast():
                yield self.module(x), y

    def _score(self, predictions: Any) -> Score:
        correct, losses, count, by_batch = 0, torch.zeros((), dtype=torch.float64, device=self.device), 0, []
        for logits, labels in predictions:
            logits = logits.to(self.dtype)
            hits = (logits.argmax(1) == labels).sum()
            losses += F.cross_entropy(logits, labels, reduction="none").sum(dtype=torch.float64)
            correct, count = correct + int(hits), count + len(labels)
            by_batch.append(int(hits) / len(labels))
        accuracy = sum(by_batch) / len(by_batch) if self.by_batches else correct / count
        return Score(accuracy, float(losses) / count, count)

    def probe(self, data: Batches, classes: int) -> None:
        """One forward pass before any training. Raises ConfigError if the model does not give `[n, classes]` scores."""
        x, _ = data.batch(torch.arange(min(2, len(data)), device=self.device))
        name = type(self.module).__name__
        try:
            self.module.eval()
            with torch.no_grad(), self.autocast():
                scores = self.module(x)
        except ConfigError:
            raise
        except Exception as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConfigError(f"model {name} fails on images of shape {tuple(x.shape[1:])}: {first}") from error
        if not isinstance(scores, Tensor) or scores.shape != (len(x), classes):
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ConfigError(
                f"model {name}: forward(x) must return class scores of shape [batch, {classes}], it returned {got} "
                f"for a batch of {len(x)}"
            )

    def steps_of(self, samples: int) -> int:
        """Gradient steps of one ordinary fit on so many samples."""
        if self.train.steps:
            return self.train.steps
        size = samples if self.train.batch_size == "full" else int(self.train.batch_size)
        return self.train.epochs * max(1, ceil(samples / size))


def cross_entropy(net: nn.Module, batch: tuple[Tensor, Tensor], state: Any = None) -> Tensor:
    """Mean cross-entropy of a batch."""
    x, y = batch
    return F.cross_entropy(net(x), y)
