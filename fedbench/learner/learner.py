"""The learner: one LightningModule on flat vectors, and every training loop of every method."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from fedbench.learner.evaluation import Score, score
from fedbench.learner.flat import FlatModule
from fedbench.learner.hooks import Hooks, overrides
from fedbench.learner.optimizers import first_line, module_optimizer
from fedbench.learner.weights import Weights

__all__ = ["Batches", "Job", "Learner", "Ledger", "Score", "cross_entropy"]

GradientEdit = Callable[[Tensor, Tensor, Any], None]
Loss = Callable[[Any, Any, Any], Tensor]


class Batches(Protocol):
    """What the learner asks of a client's data."""

    @property
    def key(self) -> tuple[int | str, ...]: ...

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass
class Job:
    """One call of `fit`, resolved: what an engine runs."""

    data: Batches
    epochs: list[list[Tensor]]
    lr: float | None
    train_only: Tensor | None
    memory: dict[str, Any] | None
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

    def add(self, losses: list[Tensor]) -> None:
        """Count these gradient steps. Read off the device once per fit."""
        self.steps += len(losses)
        if losses:
            self.loss_sum += float(torch.stack([loss.reshape(()) for loss in losses]).sum(dtype=torch.float64))

    @property
    def loss(self) -> float | None:
        """Mean training loss over the gradient steps."""
        return self.loss_sum / self.steps if self.steps else None


class Learner(FlatModule):
    """Owns the module of a host. Its parameters are views of the flat vector `w`.

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
        self.train, self.optimizer = train, optimizer
        self.evaluate_batch, self.by_batches = evaluate_batch, by_batches
        self.hooks = Hooks(module) if train.engine == "loop" else None
        if overrides(module, "setup"):
            module.setup("fit")
        if overrides(module, "configure_model"):
            module.configure_model()
        dtype = torch.float64 if train.precision == "64-true" else torch.float32
        super().__init__(module, torch.device(device), dtype, head)
        self.lr_factor = 1.0
        self.ledger = Ledger()
        self._batchnorms = {n: m for n, m in module.named_modules() if isinstance(m, _BatchNorm)}
        if optimizer == "module" and self.hooks is not None:
            self._try_optimizers(self.hooks)

    def _try_optimizers(self, hooks: Hooks) -> None:
        """Find what is wrong with configure_optimizers before anything is trained."""
        hooks.context.begin([[torch.zeros(0)] * 100] * max(1, self.train.epochs))
        try:
            module_optimizer(self.module)
        except ConfigError:
            raise
        except Exception as error:
            name = type(self.module).__name__
            raise ConfigError(
                f"{name}.configure_optimizers fails: {type(error).__name__}: {first_line(error)}"
            ) from error

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
        `loss` receives as `(first, second)` and which never decides the number of steps; `data.augment` changes the
        images of the first stream only. before_epoch: called with
        (epoch, weights, s) before every epoch; it may use the learner's other verbs and write to the tensors of `s`.
        """
        if train_only is not None and not bool(train_only.any()):
            return weights.clone()
        self.load(weights)
        single = len(data) == 1 or (second is not None and len(second[0]) == 1)
        with self._trainable(train_only), self._train_mode(train_only if freeze_norm else None, single):
            job = Job(
                data=augmented(data, purpose),
                epochs=self._plan(data, purpose, epochs, steps, batch_size),
                lr=lr,
                train_only=train_only,
                memory=memory,
                gradient=gradient,
                loss=loss,
                state=SimpleNamespace(**(state or {})),
                second=self._endless(*second) if second else None,
                before_epoch=before_epoch,
            )
            seeds.seed_everything(*data.key, purpose)
            (trainer if self.train.engine == "trainer" else loop).run(self, job)
        self.check()
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
        while steps > 0:
            plan.append(next(stream)[:steps])
            steps -= len(plan[-1])
        return plan

    def _epochs(self, data: Batches, purpose: str, batch_size: int | str) -> Iterator[list[Tensor]]:
        """Endless epochs of index tensors. A batch of one is dropped where BatchNorm runs in train mode."""
        count, least = len(data), 2 if any(norm.training for norm in self._batchnorms.values()) else 1
        size = count if batch_size == "full" else int(batch_size)
        if min(count, size) < least:
            raise ConfigError(
                f"batches of {min(count, size)} image(s) from {count}: this model trains on {least} or more at a time"
            )
        stream = seeds.generator(*data.key, purpose, "order")
        while True:
            order = torch.randperm(count, generator=stream) if self.train.shuffle else torch.arange(count)
            yield [b for b in order.to(self.device).split(size) if len(b) >= least]

    def _endless(self, data: Batches, batch_size: int, purpose: str) -> Iterator[tuple[Tensor, Tensor]]:
        for epoch in self._epochs(data, purpose, batch_size):
            for index in epoch:
                yield data.batch(index)

    @contextmanager
    def _trainable(self, train_only: Tensor | None) -> Iterator[None]:
        """Tensors that are frozen as a whole need no gradient; whatever else user code freezes is freed at the end."""
        if train_only is not None:
            for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
                parameter.requires_grad_(bool(train_only[slot.start : slot.stop].any()))
        try:
            yield
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(True)
                parameter.grad = None

    @contextmanager
    def _train_mode(self, train_only: Tensor | None, single: bool) -> Iterator[None]:
        """Train mode, but for BatchNorm layers that are wholly frozen or would see one sample in all."""
        self.module.train()
        for name, norm in self._batchnorms.items():
            norm.train(not single and (train_only is None or self._moves(name, train_only)))
        try:
            yield
        finally:
            self.module.eval()

    def _moves(self, module_name: str, train_only: Tensor) -> bool:
        """Whether any parameter of a submodule may move; one without parameters goes with what is around it."""
        under = module_name + "." if module_name else ""
        own = [s for s in self.layout.params if s.name.startswith(under)]
        if not own:
            return self._moves(module_name.rpartition(".")[0], train_only)
        return any(bool(train_only[s.start : s.stop].any()) for s in own)

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass in the run's precision."""
        if self.train.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    # -- the other verbs: they change no state, buffer, mode or random stream ----------------------------------------

    @contextmanager
    def _evaluating(self, weights: Weights, *key: int | str) -> Iterator[None]:
        """The module in evaluation mode with these weights and a torch stream of its own."""
        self.load(weights)
        modes = [(m, m.training) for m in self.module.modules() if m.training]
        self.module.eval()
        try:
            with seeds.preserved_torch_stream():
                seeds.seed_torch(seeds.derive(*key, "evaluate"))
                yield
        finally:
            for module, mode in modes:
                module.training = mode

    def gradient(
        self, weights: Weights, batch: tuple[Tensor, Tensor], loss: Loss | None = None, **state: Any
    ) -> Tensor:
        """Gradient `[N]` of the loss of one batch in evaluation mode."""
        with self._evaluating(weights):
            with self.autocast():
                value = (
                    loss(self.module, batch, SimpleNamespace(**state)) if loss else cross_entropy(self.module, batch)
                )
            parts = torch.autograd.grad(value, self.parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

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
            return score(self._predictions(predictor, data), self.dtype, self.by_batches)
        labels = data.batch(torch.arange(len(data), device=self.device))[1]
        size = self.evaluate_batch
        predictions = zip(predictor(data).split(size), labels.split(size), strict=True)
        return score(predictions, self.dtype, self.by_batches)

    def _predictions(self, weights: Weights, data: Batches) -> list[tuple[Tensor, Tensor]]:
        found = []
        with self._evaluating(weights, *data.key), torch.no_grad(), self.autocast():
            for index in torch.arange(len(data), device=self.device).split(self.evaluate_batch):
                x, y = data.batch(index)
                found.append((self.module(x), y))
        return found

    def probe(self, data: Batches, classes: int) -> None:
        """A forward pass and a gradient step before round 1. Raises ConfigError for what would fail then."""
        name, x = type(self.module).__name__, data.batch(torch.arange(min(2, len(data)), device=self.device))[0]
        failure = f"model {name} fails on images of shape {tuple(x.shape[1:])}"
        with _told(failure), self._evaluating(self.initial()), torch.no_grad(), self.autocast():
            scores = self.module(x)
        if not isinstance(scores, Tensor) or scores.shape != (len(x), classes):
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ConfigError(
                f"model {name}: forward(x) must return class scores of shape [batch, {classes}], it returned {got} "
                f"for a batch of {len(x)}"
            )
        with _told(f"model {name} fails in training"), seeds.preserved_streams():
            self.fit(self.initial(), data, purpose="probe", steps=1)
        self.ledger = Ledger()

    def steps_of(self, samples: int) -> int:
        """Gradient steps of one ordinary fit on so many samples."""
        if self.train.steps:
            return self.train.steps
        size = samples if self.train.batch_size == "full" else int(self.train.batch_size)
        return self.train.epochs * max(1, ceil(samples / size))


def augmented(data: Batches, purpose: str) -> Batches:
    """The data as a fit sees them: where they can be augmented, with a stream of draws from their key and purpose."""
    if getattr(data, "augmentation", None) is None:
        return data
    view: Batches = data.augmented(seeds.generator(*data.key, purpose, "augment"))  # type: ignore[attr-defined]
    return view


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Any error as one line that says what failed."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{what}: {type(error).__name__}: {first_line(error)}") from error


def cross_entropy(net: nn.Module, batch: tuple[Tensor, Tensor], state: Any = None) -> Tensor:
    """Mean cross-entropy of a batch."""
    x, y = batch
    return F.cross_entropy(net(x), y)
