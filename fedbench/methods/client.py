"""A client as its method sees it: its message, data, private state and training."""

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
"""Types of the arguments of a fit."""


@dataclass
class PrivateState(Declared):
    """State that a client keeps between rounds; a method adds fields, each with a default.

    Fields hold tensors, weights, numbers, strings, and lists, tuples and dicts of these; nothing else is kept. params,
    buffers, counters: the private entries of its last trained model. optimizers: optimiser states by stream, with
    `train.keep_optimizer`.
    """

    params: Tensor | None = None
    buffers: Tensor | None = None
    counters: Tensor | None = None
    optimizers: dict[str, dict[str, Any]] = field(default_factory=dict)

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
    """A personal model that is not one vector. scores: class scores `[n, C]` of data."""

    scores: Callable[[Batches], Tensor]


@dataclass
class Client(Declared, Generic[StateT_co]):
    """One client on its host.

    In an exchange a client first receives the message with a model of round `round` and is evaluated; then it trains
    in the next round. samples: training images. public: the unlabelled public images, or None. initial: the start
    model of the run. state: its private state. message: the received message. decay: current factor of every learning
    rate. keeps_optimizers: whether optimiser states are kept between rounds.
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
        """A random generator for (seed, client, round, stream)."""
        return seeds.generator(self.seed, self.id, self.round, stream)

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
                    f"client.fit: {name} must be a {kind.__name__}(...) of {kind.__module__}, not a "
                    f"{type(given[name]).__name__}"
                )
        step = step or Step()
        memory = step.memory if isinstance(step.memory, dict) else self.memory(step.memory or stream)
        return Fit(start, data, stream, amount, move, loss, step.of(self.decay, memory))
