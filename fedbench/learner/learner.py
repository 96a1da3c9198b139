"""The learner: one LightningModule on flat vectors, and every training loop of every method."""

from collections.abc import Callable, Iterator, Sequence
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
from torch.optim import Optimizer

from fedbench import processor
from fedbench.bits import holds_one
from fedbench.config import TrainConfig
from fedbench.errors import ConfigError
from fedbench.learner import loop, seeds, trainer
from fedbench.learner.evaluation import Score, score
from fedbench.learner.flat import FlatModule
from fedbench.learner.hooks import CHANGE_BATCHES, Hooks, overrides
from fedbench.learner.layout import Layout
from fedbench.learner.optimizers import first_line, module_optimizer
from fedbench.learner.order import entered_order
from fedbench.learner.products import TensorProducts
from fedbench.learner.samples import SquaredGradients
from fedbench.learner.weights import Weights

__all__ = ["Batches", "Job", "Learner", "Ledger", "Score", "cross_entropy"]

GradientEdit = Callable[[Tensor, Tensor, Any], None]
BeforeEpoch = Callable[[int, Weights, SimpleNamespace], bool | None]
AroundStep = Callable[[Any, Optimizer, Any], None]
Loss = Callable[[Any, Any, Any], Tensor]
Step = Callable[[loop.OwnSteps, Tensor, Any], None]
Adapt = Callable[[nn.Module, Layout], None]
MakeOptimizer = Callable[..., Optimizer]


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
    epochs: list[list[Any]]
    lr: float | None = None
    train_only: Tensor | None = None
    memory: dict[str, Any] | None = None
    gradient: GradientEdit | None = None
    loss: Loss | None = None
    state: SimpleNamespace = field(default_factory=SimpleNamespace)
    second: Iterator[tuple[Tensor, Tensor]] | None = None
    before_epoch: BeforeEpoch | None = None
    before_step: AroundStep | None = None
    after_step: AroundStep | None = None
    optimizer: MakeOptimizer | None = None
    step: Step | None = None
    alone: bool = False

    def batch(self, index: Tensor) -> Any:
        """The next batch, or both streams' where there are two; None for that of a second one that rests."""
        first = self.data.batch(index)
        if self.second is None:
            return first
        return first, None if self.alone else next(self.second)


@dataclass
class Ledger:
    """What the fits of a client cost and said since the last reset. own_rate: the module's own optimiser made steps."""

    steps: int = 0
    loss_sum: float = 0.0
    own_rate: bool = False
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
    head: dotted name of the classifier; adapt: changes the module, given its layout, before its parameters are counted.
    Raises ConfigError for what cannot be honoured.
    """

    def __init__(
        self,
        module: LightningModule,
        train: TrainConfig,
        *,
        optimizer: str = "sgd",
        head: str | None = None,
        adapt: Adapt | None = None,
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
        super().__init__(module, torch.device(device), dtype, head, adapt)
        self.lr_factor = 1.0
        self.ledger = Ledger()
        self._squares: SquaredGradients | None = None
        self._products: TensorProducts | None = None
        self._order: list[str] | None = None
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

    @property
    def head(self) -> nn.Module:
        """The module's classifier. Raises ConfigError where none is declared."""
        self.layout.mask("head")
        return self.module.get_submodule(self.layout.head_name or "")

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
        eval_body: bool = False,
        after: int = 0,
        gradient: GradientEdit | None = None,
        loss: Loss | None = None,
        state: dict[str, Tensor] | None = None,
        memory: dict[str, Any] | None = None,
        second: tuple[Batches, int, str] | None = None,
        before_epoch: BeforeEpoch | None = None,
        before_step: AroundStep | None = None,
        after_step: AroundStep | None = None,
        optimizer: MakeOptimizer | None = None,
        step: Step | None = None,
        batches: int | None = 1,
        shuffle: bool | None = None,
        least: int = 1,
    ) -> Weights:
        """Train from `weights` on `data` and return the trained weights; `weights` is not changed.

        purpose: names the random stream of this phase. epochs, steps, lr, batch_size: default to the run's `train.*`;
        steps beat epochs. train_only: bool `[N]`, the entries that may move (decay and momentum are masked too);
        freeze_norm: BatchNorm layers that are wholly frozen run in evaluation mode. gradient: a module-level function
        `(g, w, s)` that edits the gradient in place, elementwise over the last dimension, before decay and momentum;
        loss: a function `(net, batch, s) -> scalar`; both get `state` as attributes of `s`, and the batch's places in
        `data` as `s.index`. memory: a dict that keeps the optimiser's state between calls. second: (data, batch size,
        purpose) of a second stream of batches, which `loss` receives as `(first, second)` and which never decides the
        number of steps; `data.augment` changes the images of the first stream only. before_epoch: called with (epoch,
        weights, s) before every epoch; it may use the learner's other verbs and write to the tensors of `s`; where it
        returns False the second stream rests for this epoch, and `loss` receives `(first, None)`.
        before_step, after_step: called with (batch, optimizer, s) around every gradient step, to train a `Lane` beside.
        after: so many epochs (or steps) of this purpose's stream are done, and the fit goes on behind them. eval_body:
        all but the head runs in evaluation mode, Dropout too.
        optimizer: a class of torch.optim, with settings by `functools.partial`, that steps with the learning rate on g
        as `gradient` left it, whatever the run's optimiser, momentum and decay; `memory` then holds its state as
        vectors `[N]`.
        step: a module-level function `(passes, w, s)` that changes `w` `[N]` in place where an optimiser would, with
        the gradients of `passes` (`OwnSteps`); such a fit knows no `train_only`, `gradient`, `memory` and `lr`.
        batches: how many consecutive batches such a step takes, on across epochs; none: all of an epoch.
        shuffle: default `train.shuffle`.
        least: smaller batches are dropped (2 where a private module of the method has BatchNorm).
        """
        if train_only is not None and not holds_one(train_only):
            return weights.clone()
        self.load(weights)
        single = len(data) == 1 or (second is not None and len(second[0]) == 1)
        with self._trainable(train_only), self._train_mode(train_only if freeze_norm else None, single, eval_body):
            plan = self._plan(data, purpose, epochs, steps, batch_size, after, batches or 1, shuffle, least)
            job = Job(
                data=augmented(data, purpose),
                epochs=plan if step is None else loop.grouped(plan, batches),
                lr=lr,
                train_only=train_only,
                memory=memory,
                gradient=gradient,
                loss=loss,
                state=SimpleNamespace(**(state or {})),
                second=self._endless(*second, least) if second else None,
                before_epoch=before_epoch,
                before_step=before_step,
                after_step=after_step,
                optimizer=optimizer,
                step=step,
            )
            seeds.seed_everything(*data.key, purpose, *([after] if after else []))
            (trainer if self.train.engine == "trainer" else loop).run(self, job)
        self.check()
        return self.weights()

    def _plan(
        self,
        data: Batches,
        purpose: str,
        epochs: int | None,
        steps: int | None,
        batch_size: int | str | None,
        after: int,
        grouped: int,
        shuffle: bool | None,
        least: int,
    ) -> list[list[Tensor]]:
        """Index tensors of every batch, epoch by epoch, drawn before the loop from (seed, client, round, purpose)."""
        if epochs is None and steps is None:
            epochs, steps = self.train.epochs, self.train.steps
        stream = self.epochs(data, purpose, batch_size, least, shuffle)
        if steps is None:
            return [next(stream) for _ in range(after + (epochs or 0))][after:]
        steps *= grouped
        plan: list[list[Tensor]] = []
        while steps > 0:
            batches = next(stream)
            plan.append(batches[after : after + steps])
            after, steps = max(0, after - len(batches)), steps - len(plan[-1])
        return [epoch for epoch in plan if epoch]

    def epochs(
        self,
        data: Batches,
        purpose: str,
        batch_size: int | str | None = None,
        least: int = 1,
        shuffle: bool | None = None,
    ) -> Iterator[list[Tensor]]:
        """Endless epochs of index tensors, for a method that trains something of its own beside the module.

        Batches of less than `least` are dropped, and a batch of one where BatchNorm runs in train mode.
        """
        batch_size = batch_size or self.train.batch_size
        count, least = len(data), max(least, 2 if any(norm.training for norm in self._batchnorms.values()) else 1)
        size = count if batch_size == "full" else int(batch_size)
        if min(count, size) < least:
            raise ConfigError(
                f"batches of {min(count, size)} image(s) from {count}: this model trains on {least} or more at a time"
            )
        stream = seeds.generator(*data.key, purpose, "order")
        shuffle = self.train.shuffle if shuffle is None else shuffle
        while True:
            order = torch.randperm(count, generator=stream) if shuffle else torch.arange(count)
            yield [b for b in order.to(self.device).split(size) if len(b) >= least]

    def _endless(self, data: Batches, batch_size: int, purpose: str, least: int) -> Iterator[tuple[Tensor, Tensor]]:
        for epoch in self.epochs(data, purpose, batch_size, least):
            for index in epoch:
                yield data.batch(index)

    @contextmanager
    def _trainable(self, train_only: Tensor | None) -> Iterator[None]:
        """Tensors that are frozen as a whole need no gradient; whatever else user code freezes is freed at the end."""
        if train_only is not None:
            for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
                parameter.requires_grad_(holds_one(train_only[slot.start : slot.stop]))
        try:
            yield
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(True)
                parameter.grad = None

    @contextmanager
    def _train_mode(self, train_only: Tensor | None, single: bool, eval_body: bool) -> Iterator[None]:
        """Train mode, but for the body if so asked, and BatchNorm wholly frozen or with one sample in all."""
        self.module.train(not eval_body)
        if eval_body:
            self.head.train()
        for name, norm in self._batchnorms.items():
            norm.train(norm.training and not single and (train_only is None or self._moves(name, train_only)))
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
        return any(holds_one(train_only[s.start : s.stop]) for s in own)

    def alters(self, data: Batches) -> bool:
        """Whether the steps of a fit may see other images than the data's: augmented ones, or changed by hooks."""
        augments = getattr(data, "augmentation", None) is not None
        return augments or any(overrides(self.module, hook) for hook in CHANGE_BATCHES)

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
            with seeds.preserved_torch_stream(), self.hooks.logs.silence() if self.hooks else nullcontext():
                seeds.seed_torch(seeds.derive(*key, "evaluate"))
                yield
        finally:
            for module, mode in modes:
                module.training = mode

    def gradient(
        self, weights: Weights, batch: tuple[Tensor, Tensor], loss: Loss | None = None, **state: Any
    ) -> Tensor:
        """Gradient `[N]` of the loss of one batch in evaluation mode."""
        return self.loss_and_gradient(weights, batch, loss, **state)[1]

    def loss_and_gradient(
        self,
        weights: Weights,
        batch: tuple[Tensor, Tensor],
        loss: Loss | None = None,
        *,
        train_only: Tensor | None = None,
        **state: Any,
    ) -> tuple[Tensor, Tensor]:
        """Loss `[]` of one batch in evaluation mode and its gradient `[N]`.

        train_only: bool `[N]`; tensors that are wholly outside it cost nothing and get a gradient of 0.
        """
        moving = nullcontext() if train_only is None else self._trainable(train_only)
        with self._evaluating(weights), moving:
            with self.autocast():
                value = (
                    loss(self.module, batch, SimpleNamespace(**state)) if loss else cross_entropy(self.module, batch)
                )
            asked = [p for p in self.parameters if p.requires_grad]
            found = iter(torch.autograd.grad(value, asked, allow_unused=True, materialize_grads=True))
            parts = [next(found) if p.requires_grad else torch.zeros_like(p) for p in self.parameters]
        return value.detach(), torch.cat([part.reshape(-1) for part in parts])

    def loss_and_products(self, weights: Weights, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The module's own loss `[]` of one batch in evaluation mode, and every tensor's product with its gradient.

        `[tensors]`: inner products, found without the gradients where layers allow it. Weights whose vector is the
        module's `w` are there already and cost no copy.
        """
        products = self._products or self._tensor_products(batch)
        with self._evaluating(weights), torch.enable_grad():
            return products(batch)

    def _tensor_products(self, batch: tuple[Tensor, Tensor]) -> TensorProducts:
        """Made once, at the first weights and on noise, so that every host takes the same way."""
        kept, names = self.weights(), [slot.name for slot in self.layout.params]
        with self._evaluating(self.initial()), torch.enable_grad():
            like = self._noise(batch[0].shape[1:]), batch[1].new_zeros(2, *batch[1].shape[1:])
            self._products = TensorProducts(self.module, names, self._task_loss, like)
        self.load(kept)
        return self._products

    def _task_loss(self, module: LightningModule, batch: Any) -> Tensor:
        with self.autocast():
            return loop.task_loss(module, batch)

    def _noise_like(self, data: Batches) -> Tensor:
        return self._noise(data.batch(torch.zeros(1, dtype=torch.int64, device=self.device))[0].shape[1:])

    def _noise(self, shape: Sequence[int]) -> Tensor:
        """Two inputs."""
        drawn = torch.randn(2, *shape, dtype=self.dtype, generator=torch.Generator().manual_seed(0))
        return drawn.to(self.device)

    def full_gradient(self, weights: Weights, data: Batches) -> Tensor:
        """Gradient `[N]` of the mean cross-entropy over all data in evaluation mode, float64."""
        total = torch.zeros_like(self.w, dtype=torch.float64)
        for index in torch.arange(len(data), device=self.device).split(self.evaluate_batch):
            total.add_(self.gradient(weights, data.batch(index)), alpha=len(index) / len(data))
        return total

    def squared_gradients(self, weights: Weights, data: Batches) -> Tensor:
        """Mean over the data of the squared gradient `[N]` of every sample's cross-entropy, float64.

        In evaluation mode; the diagonal of the empirical Fisher information at the true labels.
        """
        total, squares = torch.zeros_like(self.w, dtype=torch.float64), self._squared_gradients(data)
        with self._evaluating(weights, *data.key), self.autocast():
            for index in torch.arange(len(data), device=self.device).split(squares.at_once):
                for slot, part in zip(self.layout.params, squares(*data.batch(index)), strict=True):
                    total[slot.start : slot.stop] += part.flatten()
        return total.div_(len(data))

    def _squared_gradients(self, data: Batches) -> SquaredGradients:
        """Made once, and on noise, so that every host takes the same way."""
        if self._squares is None:
            with self._evaluating(self.initial()), self.autocast():
                names = [slot.name for slot in self.layout.params]
                self._squares = SquaredGradients(self.module, names, self._noise_like(data))
        return self._squares

    def forward_order(self, data: Batches) -> list[str]:
        """Dotted names of the module and all submodules as a forward pass enters them (`entered_order`).

        Found once, on noise, so that every host takes the same way.
        """
        if self._order is None:
            kept = self.weights()
            with self._evaluating(self.initial()), torch.no_grad(), self.autocast():
                self._order = entered_order(self.module, self._noise_like(data))
            self.load(kept)
        return self._order

    def logits(self, weights: Weights, data: Batches) -> Tensor:
        """Class scores `[n, C]` in evaluation mode, in the order of the data."""
        return torch.cat([logits for logits, _ in self._predictions(weights, data)])

    def features(self, weights: Weights, data: Batches) -> Tensor:
        """Inputs of the head `[n, d]` in evaluation mode. Raises ConfigError where no head is declared."""
        with loop.calls_of(self.head) as calls:
            self._predictions(weights, data)
        return torch.cat([features for features, _ in calls])

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

    def warnings(self, sizes: Sequence[int]) -> list[str]:
        """What to say once of clients with so many training images."""
        lines = []
        single = sum(size == 1 for size in sizes)
        if single and self._batchnorms:
            lines.append(
                f"{single} client(s) have one training image: their BatchNorm layers train with running statistics, "
                "because one image has no variance"
            )
        if self.train.precision == "bf16-mixed" and self.device.type == "cpu" and processor.has("bf16") is False:
            lines.append(
                "train.precision = bf16-mixed: this processor has no bfloat16 instructions, which makes it many times "
                "slower than 32-true"
            )
        return lines

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
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what}: {type(error).__name__}: {first_line(error)}") from error


def cross_entropy(net: nn.Module, batch: tuple[Tensor, Tensor], state: Any = None) -> Tensor:
    """Mean cross-entropy of a batch."""
    x, y = batch
    return F.cross_entropy(net(x), y)
