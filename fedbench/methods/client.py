"""A client as its method sees it: what it has received, its data, what it keeps, and how it trains."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Generic

import torch
from torch import Tensor
from typing_extensions import TypeVar

from fedbench.engine.fit import AMOUNT, Amount, Batches, Fit, Loss, Move, Step
from fedbench.engine.learner import Learner
from fedbench.engine.loop import Training
from fedbench.errors import RunError
from fedbench.methods.messages import Message
from fedbench.methods.state import Declared
from fedbench.module import seeds
from fedbench.module.weights import Weights

KINDS = {"start": Weights, "amount": Amount, "move": Move, "loss": Loss, "step": Step}
"""What a fit is asked by."""


@dataclass
class PrivateState(Declared):
    """What a client keeps from round to round; a method adds fields, each with a default.

    Fields hold tensors, weights, numbers, strings, and lists, tuples and dicts of these; nothing else is kept. params,
    buffers, counters: the private entries of the model that it trained last. optimizers: with `train.keep_optimizer`,
    by stream.
    """

    params: Tensor | None = None
    buffers: Tensor | None = None
    counters: Tensor | None = None
    optimizers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether every field is as it was before the first round."""
        return all(_is_default(getattr(self, f.name), f) for f in fields(self))


StateT_co = TypeVar("StateT_co", bound=PrivateState, default=PrivateState, covariant=True)


def _is_default(value: Any, of: Any) -> bool:
    default = of.default if of.default is not MISSING else of.default_factory()
    return value is default or (not isinstance(value, Tensor | Weights) and value == default)


@dataclass
class Predictor:
    """A personal model that is not a single vector. scores: class scores `[n, C]` of data."""

    scores: Callable[[Batches], Tensor]


@dataclass
class Client(Declared, Generic[StateT_co]):
    """One client on the host that works for it.

    In an exchange a client first holds the message with a model of round `round`, and is evaluated; then it trains in
    the round after it. samples: training images. public: the unlabelled public images, or None. initial: the start
    model of the run. state: what it keeps. message: what it was sent. decay: factor of every learning rate now.
    keeps_optimizers: whether they go on from round to round.
    """

    id: int
    samples: int
    train: Any
    val: Any
    test: Any
    public: Any
    learner: Learner
    initial: Weights
    seed: int
    round: int
    state: StateT_co
    message: Message = field(default_factory=Message)
    decay: float = 1.0
    keeps_optimizers: bool = False

    def generator(self, stream: str) -> torch.Generator:
        """Random draws of its own for (seed, client, round, stream)."""
        return seeds.generator(self.seed, self.id, self.round, stream)

    def rate(self, lr: float | None = None) -> float:
        """A learning rate in this round, by default `train.lr`."""
        return (self.learner.train.lr if lr is None else lr) * self.decay

    def memory(self, name: str) -> dict[str, Any] | None:
        """Where an optimiser is kept between rounds, if it is."""
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
        """A local training whose steps the method makes itself, batch by batch."""
        return self.learner.training(self._fit(start, data, stream, amount, move, loss, step))

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
        given = {"start": start, "amount": amount, "move": move, "loss": loss, "step": step}
        for name, kind in KINDS.items():
            if given[name] is not None and not isinstance(given[name], kind):
                raise RunError(
                    f"client.fit: {name} must be {kind.__name__}(...) of {kind.__module__}, it is a "
                    f"{type(given[name]).__name__}"
                )
        step = step or Step()
        memory = step.memory if isinstance(step.memory, dict) else self.memory(step.memory or stream)
        return Fit(start, data, stream, amount, move, loss, step.of(self.decay, memory))
