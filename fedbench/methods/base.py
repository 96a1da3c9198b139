"""The contract of a method. The defaults are FedAvg, so that a method says only in what it differs."""

import sys
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, cast

import torch
from pydantic import Field
from torch import nn
from typing_extensions import TypeVar

from fedbench.aggregation.aggregator import Hook, mean_suffices
from fedbench.aggregation.means import normalise
from fedbench.config import Section, TrainConfig
from fedbench.engine.fit import AMOUNT
from fedbench.errors import ConfigError, RunError, place_of_code
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Field as MessageField
from fedbench.methods.messages import Message, Upload, model_message, uncounted, weights_of
from fedbench.methods.server import Context, ServerState, ServerT
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries, Masks
from fedbench.module.weights import Weights

Point = Literal["after_fit", "after_agg"]
WEIGHTS_TOLERANCE = 1e-6
"""By which a sum of weights may miss 1."""
DECISIONS_HEADING = "Where we decide:"
"""The line of a module's docstring under which its decisions stand, as a list."""
NEEDS = {
    "head": "a classifier head",
    "public": "a public set",
    "classes": "classes",
    "epochs": "epochs in place of train.steps",
}
"""What a method may need, in words."""

StateT = TypeVar("StateT", bound=PrivateState, default=PrivateState)
OptionsT = TypeVar("OptionsT", bound="Method.Options", default="Method.Options")


def uses_aggregator(hook: Hook) -> Hook:
    """Marks an `aggregate` that makes the shared model by `Method.aggregate`, so that any aggregator may be chosen.

    An `aggregate` that takes the place of a marked one has no mark, until it is marked too.
    """
    vars(hook)["uses_aggregator"] = True
    return hook


def takes_aggregators(kind: "type[Method]") -> bool:
    """Whether any aggregator may be chosen for a method."""
    return getattr(kind.aggregate, "uses_aggregator", False)


def needs_mean_only(kind: "type[Method]") -> bool:
    """Whether hosts may add uploads up by `weights`: its server half makes the same of their mean as of all of them."""
    return all(getattr(hook, "mean_suffices", False) for hook in (kind.aggregate, kind.weights))


@dataclass(frozen=True)
class About:
    """What `fedbench methods` says of a method. line: what it does; paper: authors and venue."""

    line: str
    family: str = "own"
    paper: str = ""
    year: int | None = None


class Method(Generic[OptionsT, StateT, ServerT]):
    """A federated method: the client half, the server half and its options. The base class is FedAvg.

    Options: as `method.<name>`; State: what a client keeps; Server: what the server keeps; both dataclasses. For type
    checks a class with its own names them: `class Mine(Method["Mine.Options", "Mine.State", "Mine.Server"])`.

    Hooks, each with FedAvg's answer. Of the client: private, begin, receive, train, personal, idle_model; of the
    server: start, send, aggregate, weights, global_model; of both: check, adapt_model, steps.

    Traits, each with its default and, in brackets, who asks: needs, after_fit, optimizer, trainers, makes_steps, and
    two marks of hooks, `uses_aggregator` (aggregate) and `mean_suffices` (aggregate and weights).
    """

    about: ClassVar[About] = About("")

    class Options(Section):
        """Options as `method.<name>`."""

        weighting: Literal["samples", "uniform"] = Field(
            "samples", description="weight of a client in the mean: its training images, or the same for all"
        )
        buffers: Literal["average", "private"] = Field(
            "average", description="running statistics: averaged with the parameters, or never leave the client"
        )

    State: ClassVar[type[PrivateState]] = PrivateState
    Server: ClassVar[type[ServerState]] = ServerState

    train_defaults: ClassVar[dict[str, Any]] = {}
    """Its own defaults of `train.*` keys (resolve)."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What it cannot do without, of NEEDS (resolve, `fedbench methods`)."""
    after_fit: ClassVar[Literal["fit", "after_agg", "global"]] = "fit"
    """Where the scores of after_fit come from: the fit, or another point that is the same by definition (driver)."""
    optimizer: ClassVar[Literal["run", "own", "plain"]] = "run"
    """Whose steps train the model: the run's optimiser, its own, or plain steps without one (warnings, spaces)."""

    @classmethod
    def trainers(cls, options: OptionsT) -> Literal["drawn", "all", "pooled"]:
        """Who trains in a round: the clients drawn for it, all, or one model on the pooled data (driver, estimates)."""
        return "drawn"

    @classmethod
    def makes_steps(cls, options: OptionsT) -> bool:
        """Whether it makes its steps itself, by `Client.training`, which no other engine can (resolve, warnings)."""
        return False

    def __init__(self, options: OptionsT, context: Context) -> None:
        self.options, self.context = options, context
        private = self.private(context.layout)
        if not isinstance(private, Masks):
            raise ConfigError(f"{type(self).__name__}.private must return Masks ({place_of_code(self.private)})")
        buffers = torch.ones_like(private.buffers) if options.buffers == "private" else private.buffers
        counters = context.layout.counters_beside(buffers) if private.counters is None else private.counters
        self.private_params, self.shared_params = Entries(private.params), Entries(~private.params)
        self.private_buffers, self.shared_buffers = Entries(buffers), Entries(~buffers)
        self.private_counters = Entries(counters)

    @classmethod
    def decisions(cls, options: OptionsT) -> list[str]:
        """What the paper leaves open and the method decides: what its file says, or that of the one it derives from."""
        documents = (getattr(sys.modules.get(kind.__module__), "__doc__", None) for kind in cls.__mro__)
        return next((found for text in documents if (found := decisions_in(text or ""))), [])

    def check(self) -> Iterable[str]:
        """Lines to say once before round 1. Raises ConfigError for what makes no sense."""
        return ()

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: OptionsT, seed: int) -> None:
        """Change the model before its parameters are counted, for example add some; layout: of the model as it is."""

    @classmethod
    def steps(cls, options: OptionsT, train: TrainConfig, samples: int, public: int) -> int:
        """Gradient steps of a participant in a round after its first one, by which budgets and estimates go.

        What counts as one: every gradient that a model is trained by, of a batch. samples: training images of the
        client; public: public images.
        """
        return AMOUNT.steps_on(samples, train)

    def private(self, layout: Layout) -> Masks:
        """The entries of the model that never leave the client."""
        return layout.nothing()

    def begin(self, client: Client[StateT]) -> None:
        """Set the first private state of a client."""

    def receive(self, client: Client[StateT]) -> Weights:
        """What the client has once it holds its message. Changes no state, buffer or random stream."""
        initial, message, state = client.initial, client.message, client.state
        params = self.shared_params.put(initial.params, message.params)
        buffers = self.shared_buffers.put(initial.buffers, message.buffers)
        counters = initial.counters if state.counters is None else state.counters
        return Weights(
            params=self.private_params.put(params, state.params),
            buffers=self.private_buffers.put(buffers, state.buffers),
            counters=self.private_counters.put(message.counters, self.private_counters.take(counters)),
        )

    def train(self, client: Client[StateT], received: Weights) -> Upload:
        """Train, keep what is private, return what is sent."""
        return self.upload(client, client.fit(received, client.train))

    def personal(self, client: Client[StateT], model: Weights, point: Point) -> Weights | Predictor | None:
        """What is evaluated at a point, made of the model that was trained (after_fit) or received (after_agg).

        None where the point has no meaning in this round. Changes no state, buffer or random stream.
        """
        return model

    def start(self, initial: Weights) -> ServerT:
        """The server's first state."""
        params, buffers = self.shared_params.take(initial.params), self.shared_buffers.take(initial.buffers)
        return cast("ServerT", self.Server(params, buffers, initial.counters))

    def send(self, server: ServerT, client: int) -> Message:
        """What client number `client` is sent. Tensors that several clients share are sent to a host once."""
        return model_message(server.params, server.buffers, server.counters)

    @uses_aggregator
    @mean_suffices
    def aggregate(self, server: ServerT, uploads: list[Upload]) -> None:
        """Turn the uploads of a round, ascending by client and never empty, into the server's next state.

        Their tensors are the server's: it may keep them, and write to those that the client half does not keep too.
        """
        aggregator = self.context.aggregator
        if len(uploads) < aggregator.fewest:
            server.warn(
                f"aggregator {aggregator.name}: fewer than {aggregator.fewest} uploads came in a round, so that the "
                "shared model stayed as it was"
            )
            return
        models, weights = [weights_of(u) for u in uploads], self.checked_weights(uploads)
        model = aggregator.combine(models, weights, weights_of(server), server.aggregator)
        server.params, server.buffers, server.counters = model.params, model.buffers, model.counters

    @mean_suffices
    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        """Weights of the uploads, summing to 1: by training images, or uniform."""
        if self.options.weighting == "uniform":
            return [1 / len(uploads)] * len(uploads)
        return normalise([u.samples for u in uploads])

    def checked_weights(self, uploads: Sequence[Upload]) -> list[float]:
        """The weights of the uploads. Raises RunError where they are none."""
        found = self.weights(uploads)
        try:
            numbers = [float(weight) for weight in found]
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) == len(uploads) and abs(sum(numbers) - 1) < WEIGHTS_TOLERANCE:
            return numbers
        got = f"{len(numbers)} that sum to {sum(numbers):g}" if numbers else f"a value of type {type(found).__name__}"
        raise RunError(
            f"{type(self).__name__}.weights must return a weight for each of {len(uploads)} uploads, which sum to 1 "
            f"(fedbench.aggregation.means.normalise makes them do so); it returned {got}",
            place_of_code(self.weights),
        )

    def idle_model(self, client: Client[StateT]) -> Weights:
        """What is evaluated as trained at a client that sits out, where no score of a fit is known.

        Before its first training: the start model as the client has it. A method with an answer of its own is asked
        again after every extra pass. `client.round` is the round of the model that was delivered, with which this is
        evaluated.
        """
        initial, state = client.initial, client.state
        return initial.replace(
            params=self.private_params.put(initial.params, state.params),
            buffers=self.private_buffers.put(initial.buffers, state.buffers),
        )

    def upload(
        self, client: Client[StateT], trained: Weights, *, traces: dict[str, float] | None = None, **more: MessageField
    ) -> Upload:
        """Keep the private part of the trained model at the client and pack the rest with `more` fields."""
        if self.private_params.size:
            client.state.params = self.private_params.take(trained.params)
        if self.private_buffers.size:
            client.state.buffers = self.private_buffers.take(trained.buffers)
        if self.private_counters.size:
            client.state.counters = trained.counters
        fields: dict[str, MessageField] = {
            "params": self.shared_params.take(trained.params),
            "buffers": self.shared_buffers.take(trained.buffers),
            "counters": uncounted(trained.counters),
        }
        return Upload(client.id, client.samples, trained, traces, **{**fields, **more})

    def global_model(self, server: ServerT, initial: Weights) -> Weights | None:
        """The global model, where there is one to evaluate: by default where everything is shared."""
        return self.whole_model(server, initial) if self.shared_params.all and self.shared_buffers.all else None

    def whole_model(self, server: ServerT, initial: Weights) -> Weights:
        """The shared model of the server, with the initial numbers where it has none."""
        return Weights(
            params=self.shared_params.put(initial.params, server.params),
            buffers=self.shared_buffers.put(initial.buffers, server.buffers),
            counters=server.counters,
        )


def decisions_in(text: str) -> list[str]:
    """The items of the list under the heading in a module's docstring, a line each."""
    _, _, below = text.partition(f"\n{DECISIONS_HEADING}\n")
    items = f"\n{below}".partition("\n\n")[0].split("\n- ")[1:]
    return [" ".join(item.split()) for item in items]


class ExtraPass(Method[OptionsT, StateT, ServerT]):
    """A method whose server may ask all clients something between two rounds; the traffic counts."""

    @abstractmethod
    def question(self, server: ServerT) -> Message | None:
        """After an aggregation (and before round 1): what to ask all clients, or None."""

    @abstractmethod
    def answer(self, client: Client[StateT]) -> Message:
        """A client's answer to its message, the question. Changes no state, buffer or random stream."""

    @abstractmethod
    def conclude(self, server: ServerT, answers: dict[int, Message]) -> None:
        """The server half's use of the answers, by client."""
