"""A client as its method sees it: its message, data, private state and training."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any, Generic, NoReturn

import torch
from torch import Tensor
from typing_extensions import TypeVar

from fedbench.engine.fit import AMOUNT, Amount, Batches, Fit, Loss, Move, OneBatch, Step, Unlabelled
from fedbench.engine.learner import Learner
from fedbench.engine.loop import Training
from fedbench.errors import RunError
from fedbench.methods.messages import Message
from fedbench.methods.state import DeclaredFields
from fedbench.module import seeds
from fedbench.module.weights import Weights

KINDS = {"start": Weights, "amount": Amount, "move": Move, "loss": Loss, "step": Step}
"""Types of the arguments of a fit."""


@dataclass
class PrivateState(DeclaredFields):
    """State that a client keeps between rounds; a method adds fields, each with a default.

    Fields hold tensors, weights, numbers, strings, and lists, tuples and dicts of these; nothing else is kept.
    Vectors come on the device of the client's models. params, buffers, counters: the private entries of its last
    trained model. optimizers: optimiser states by stream, with `train.keep_optimizer`. residual: what compression has
    left out of its updates so far, with error feedback.
    """

    params: Tensor | None = None
    buffers: Tensor | None = None
    counters: Tensor | None = None
    optimizers: dict[str, dict[str, Any]] = field(default_factory=dict)
    residual: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every field has its value from before round 1."""
        return all(_is_default(getattr(self, f.name), f) for f in fields(self))


StateT_co = TypeVar("StateT_co", bound=PrivateState, default=PrivateState, covariant=True)


def _is_default(value: Any, of: Any) -> bool:
    default = of.default if of.default is not MISSING else of.default_factory()
    return value is default or (not isinstance(value, Tensor | Weights) and value == default)


@dataclass
class Predictor:
    """A personal model that is not one vector.

    scores: class scores `[n, C]` of data, whose targets it does not see and on which it cannot fit; loss_of: the model
    whose loss is reported, by default that of the scores.
    """

    scores: Callable[[Batches], Tensor]
    loss_of: Weights | None = None


@dataclass
class Client(DeclaredFields, Generic[StateT_co]):
    """One client on its host.

    In an exchange a client first receives the message with a model of round `round` and is evaluated; then it trains
    in the next round. samples: training images. train: they themselves; those for validation and tests stay with the
    host, which evaluates. public: the unlabelled public images, or None. initial: the start model of the run. state:
    its private state. message: the received message. decay: current factor of every learning rate. keeps_optimizers:
    whether optimiser states are kept between rounds. epochs: of a newcomer's local training, in place of `train.epochs`
    and `train.steps`. work: the share of the steps of every fit that it takes, below 1 of a straggler.
    """

    id: int
    samples: int
    train: Any
    public: Any
    learner: Learner
    initial: Weights
    seed: int
    round: int
    state: StateT_co
    message: Message = field(default_factory=Message)
    decay: float = 1.0
    keeps_optimizers: bool = False
    epochs: int | None = None
    work: float = 1.0

    @property
    def val(self) -> NoReturn:
        """Raises RunError: a method does not see these samples."""
        refuse_held_out("client.val")

    @property
    def test(self) -> NoReturn:
        """Raises RunError: a method does not see these samples."""
        refuse_held_out("client.test")

    @property
    def steps_made(self) -> int:
        """Gradient steps of this training so far."""
        return self.learner.ledger.steps

    def generator(self, stream: str) -> torch.Generator:
        """A random generator for (seed, client, round, stream)."""
        return seeds.generator(self.seed, self.id, self.round, stream)

    def split(self, share: float, stream: str | None = None) -> tuple[Any, Any]:
        """The training images in two parts, in stored order: those that stay, and a share that is held out.

        Drawn once per run from a stream of the client; None: the last ones are held out (see `held_count`).
        """
        count = len(self.train)
        order = torch.arange(count)
        if stream is not None:
            order = torch.randperm(count, generator=seeds.generator(self.seed, self.id, stream))
        stay = count - held_count(count, share)
        return self.train.part(order[:stay].sort().values), self.train.part(order[stay:].sort().values)

    def amount(self, amount: Amount = AMOUNT) -> Amount:
        """The length of a fit, with the epochs of a newcomer if the method leaves it open."""
        is_open = amount.epochs is None and amount.steps is None
        return replace(amount, epochs=self.epochs) if is_open else amount

    def rate(self, lr: float | None = None) -> float:
        """The learning rate of this round, from `lr` or `train.lr`."""
        return (self.learner.train.lr if lr is None else lr) * self.decay

    def memory(self, name: str) -> dict[str, Any] | None:
        """The state of an optimiser if it is kept between rounds."""
        return self.state.optimizers.setdefault(name, {}) if self.keeps_optimizers else None

    def fit(
        self,
        start: Weights,
        data: Batches,
        stream: str = "fit",
        amount: Amount = AMOUNT,
        move: Move | None = None,
        loss: Loss | None = None,
        step: Step | None = None,
    ) -> Weights:
        """The model after a local training (see `Fit`)."""
        return self.learner.fit(self._fit(start, data, stream, amount, move, loss, step))

    def training(
        self,
        start: Weights,
        data: Batches,
        stream: str = "fit",
        amount: Amount = AMOUNT,
        move: Move | None = None,
        loss: Loss | None = None,
        step: Step | None = None,
    ) -> AbstractContextManager[Training]:
        """A local training whose steps the method takes itself, batch by batch."""
        return self.learner.training(self._fit(start, data, stream, amount, move, loss, step))

    def distillation_loss(
        self, function: Callable[..., Tensor], teach: Callable[[Batches], Tensor], data: Batches, **needs: Any
    ) -> Loss:
        """The loss `function(net, batch, s, teacher)` with what frozen models say of a batch.

        teach: `[n, ...]` of data. Computed once for all samples of `data`, or batch by batch where these are augmented.
        """

        def of_batch(batch: Any) -> Tensor:
            with self.learner.preserve():
                return teach(OneBatch(batch[0], batch[1], data.key))

        if self.learner.changes_batches(data):
            return Loss(partial(with_teacher_outputs, function=function, of_batch=of_batch), **needs)
        return Loss(
            partial(with_teacher_outputs, function=function, of_batch=None), teacher_outputs=teach(data), **needs
        )

    def _fit(
        self,
        start: Weights,
        data: Batches,
        stream: str,
        amount: Amount,
        move: Move | None,
        loss: Loss | None,
        step: Step | None,
    ) -> Fit:
        if isinstance(data, Unlabelled):
            refuse_held_out("client.fit in the scores of a Predictor")
        given = {"start": start, "amount": amount, "move": move, "loss": loss, "step": step}
        for name, kind in KINDS.items():
            if given[name] is not None and not isinstance(given[name], kind):
                raise RunError(
                    f"client.fit: {name} must be a {kind.__name__}(...) of {kind.__module__}, not a "
                    f"{type(given[name]).__name__}"
                )
        step = step or Step()
        self.learner.refuse_part(len(data), self.samples)
        memory = step.memory if isinstance(step.memory, dict) else self.memory(step.memory or stream)
        amount = self.amount(amount).part(self.work, len(data), self.learner.train)
        return Fit(start, data, stream, amount, move, loss, step.of(self.decay, memory))


def refuse_held_out(what: str) -> NoReturn:
    """Raises RunError for a use of samples that models are scored on."""
    raise RunError(
        f"{what}: a method must not learn from the samples for validation and tests, on which fedbench scores its "
        "models; for held-out samples of its own split the training part: `kept, held = client.split(0.2)`"
    )


def with_teacher_outputs(
    net: Any, batch: Any, s: Any, function: Callable[..., Tensor], of_batch: Callable[[Any], Tensor] | None
) -> Tensor:
    """A loss that also gets what frozen models say of its batch: from `s.teacher_outputs` [n, ...], or computed now."""
    teacher = s.teacher_outputs.index_select(0, s.index) if of_batch is None else of_batch(batch)
    return function(net, batch, s, teacher)


def held_count(count: int, share: float) -> int:
    """How many of some samples a share is, rounded: at least one, and never all; 0 of one sample."""
    return min(max(int(share * count + 0.5), 1), count - 1)
