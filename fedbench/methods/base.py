"""The contract of a method. The defaults are FedAvg; a method overrides only what differs."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Literal, cast

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from typing_extensions import TypeVar

from fedbench.aggregation.aggregator import Hook, combine_by, mean_suffices
from fedbench.aggregation.means import normalise, weighted_mean
from fedbench.config import Section, TrainConfig
from fedbench.engine.fit import AMOUNT, Move
from fedbench.engine.private_loop import refuse_method
from fedbench.errors import ConfigError, RunError, place_of_code
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Field as MessageField
from fedbench.methods.messages import Message, Upload, model_message, weights_of, zero_bytes
from fedbench.methods.server import Context, ServerState, ServerT
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries, Masks
from fedbench.module.weights import Weights
from fedbench.results.trace import Trace

Point = Literal["after_fit", "after_agg"]
WEIGHTS_TOLERANCE = 1e-6
"""Largest deviation of a sum of weights from 1."""
DECISIONS_HEADING = "Where we decide:"
"""The line of a module's docstring that precedes the list of its decisions."""
NEEDS = {
    "head": "a classifier head",
    "public": "a public set",
    "classes": "classes",
    "epochs": "epochs in place of train.steps",
}
"""Requirements of methods, in words."""

StateT = TypeVar("StateT", bound=PrivateState, default=PrivateState)
OptionsT = TypeVar("OptionsT", bound="Method.Options", default="Method.Options")


def uses_aggregator(hook: Hook) -> Hook:
    """Marks an `aggregate` that computes the shared model by `Method.aggregate`: any aggregator may be chosen.

    An `aggregate` that overrides a marked one must be marked again.
    """
    vars(hook)["uses_aggregator"] = True
    return hook


def takes_aggregators(kind: "type[Method]") -> bool:
    """Whether any aggregator may be chosen for a method."""
    return getattr(kind.aggregate, "uses_aggregator", False)


def needs_mean_only(kind: "type[Method]") -> bool:
    """Whether hosts may average uploads by `weights`: the server half needs only the mean of the uploads."""
    return all(getattr(hook, "mean_suffices", False) for hook in (kind.aggregate, kind.weights))


@dataclass(frozen=True)
class About:
    """The entry of a method in `fedbench methods`. line: what it does; paper: authors and venue."""

    line: str
    family: str = "own"
    paper: str = ""
    year: int | None = None


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a run when a method adapts the model. features: of the head's input, 0 if it is not Linear.

    another: a model for the run's data by its name, drawn with the run's seed, for methods that train one beside the
    client's; None names the run's first.
    """

    seed: int
    classes: int = 0
    features: int = 0
    another: Callable[[str | None], nn.Module] = lambda name: nn.Identity()


class Method(Generic[OptionsT, StateT, ServerT]):
    """A federated method: the client half, the server half and its options. The base class is FedAvg.

    Options: set by `method.<name>`; State and Server: dataclasses of what a client and the server keep. For type
    checks, a class that defines its own names them: `class Mine(Method["Mine.Options", "Mine.State", "Mine.Server"])`.

    Hooks, which default to FedAvg. Client: private, frozen, begin, receive, train, outgoing, personal, idle_model,
    join; server: start, send, aggregate, weights, global_model, shared_part, welcome; both: check, adapt_model, steps,
    common_shapes, reference.

    Traits, each with its default and, in parentheses, its readers: needs, after_fit, optimizer, also_sends, traces,
    trainers, makes_steps; and two marks of hooks, `uses_aggregator` (aggregate) and `mean_suffices` (aggregate and
    weights).
    """

    about: ClassVar[About] = About("")

    class Options(Section):
        """Options, set by `method.<name>`. Defaults are checked like values."""

        model_config = ConfigDict(validate_default=True)

        weighting: Literal["samples", "uniform"] = Field(
            "samples", description="weight of a client in the mean: its training samples, or the same for all"
        )
        buffers: Literal["average", "private"] = Field(
            "average", description="running statistics: averaged with the parameters, or never leave the client"
        )

    class UniformOptions(Options):
        """Options of a method whose paper averages clients alike."""

        weighting: Literal["samples", "uniform"] = Field(
            "uniform", description="weight of a client in the mean: its training samples, or the same for all"
        )

    State: ClassVar[type[PrivateState]] = PrivateState
    Server: ClassVar[type[ServerState]] = ServerState

    REDUCES_TO: ClassVar[dict[str, Any]] = {}
    """Degenerate cases: other methods, with the keys with which this one has the same bits: `{"fedavg": {"method.mu":
    0}}`. Several cases of one method are a list. The key `point` limits a case to after_fit, to after_agg, or to the
    global model (`global`). Read of the class itself, not of its bases (`fedbench check`)."""
    train_defaults: ClassVar[dict[str, Any]] = {}
    """The method's defaults of `train.*` keys (resolve)."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """The keys of NEEDS that the method requires (resolve, `fedbench methods`)."""
    after_fit: ClassVar[Literal["fit", "after_agg", "global"]] = "fit"
    """Source of the after_fit scores: the fit, or another point that equals it by definition (driver)."""
    optimizer: ClassVar[Literal["run", "own", "plain"]] = "run"
    """The optimiser that trains the model: the run's, the method's own, or plain steps (warnings, spaces)."""
    also_sends: ClassVar[str] = ""
    """Fields that clients upload besides parameters and buffers, in words (attacks, compression, privacy)."""
    traces: ClassVar[tuple[Trace, ...]] = ()
    """How pages show what it traces; traces that are not here are drawn by their form (description)."""

    @classmethod
    def trainers(cls, options: OptionsT) -> Literal["drawn", "all", "pooled"]:
        """Who trains in a round: the sampled clients, all, or one model on the pooled data (driver, estimates)."""
        return "drawn"

    @classmethod
    def makes_steps(cls, options: OptionsT) -> bool:
        """Whether it takes its own steps, by `Client.training`, which other engines cannot (resolve, warnings)."""
        return False

    def __init__(self, options: OptionsT, context: Context) -> None:
        self.options, self.context = options, context
        private, frozen = self.private(context.layout), self.frozen(context.layout)
        for hook, masks in ((self.private, private), (self.frozen, frozen)):
            if not isinstance(masks, Masks):
                raise ConfigError(f"{type(self).__name__}.{hook.__name__} must return Masks ({place_of_code(hook)})")
        buffers = torch.ones_like(private.buffers) if options.buffers == "private" else private.buffers
        counters = context.layout.counters_beside(buffers) if private.counters is None else private.counters
        self.private_params, self.private_buffers = (
            Entries(private.params & ~frozen.params),
            Entries(buffers & ~frozen.buffers),
        )
        self.shared_params = Entries(~(private.params | frozen.params))
        self.shared_buffers = Entries(~(buffers | frozen.buffers))
        self.private_counters, self.shared_counters = Entries(counters), Entries(~counters)
        self.moves = Move(~frozen.params) if frozen.params.any() else None
        """The entries that a fit may move: all but the frozen ones."""

    @classmethod
    def decisions(cls, options: OptionsT) -> list[str]:
        """Decisions of the method that the paper leaves open, from its module's docstring or a base class's."""
        documents = (getattr(sys.modules.get(kind.__module__), "__doc__", None) for kind in cls.__mro__)
        return next((lines for text in documents if (lines := decisions_in(text or ""))), [])

    def check(self) -> Iterable[str]:
        """Warnings to show once before round 1. Raises ConfigError for invalid settings."""
        return ()

    def refuse_newcomers(self, why: str) -> None:
        """For `check`: raises ConfigError if clients join after the last round."""
        if self.context.newcomers:
            raise ConfigError(
                f"partition.new_clients: {self.context.method} has no rule for clients that join later: {why}; leave "
                "it out"
            )

    def refuse_private_steps(self, learns_by: str) -> None:
        """For `check`: raises ConfigError if gradients are made private, but clients also learn by something else."""
        if self.context.private_steps:
            refuse_method(self.context.method, f"also learns by {learns_by}")

    def refuse_changed_uploads(self) -> None:
        """For `check`: raises ConfigError if uploads are changed on their way, which encoded parameters do not bear."""
        if key := self.context.changes_uploads:
            raise ConfigError(
                f"{key}: {self.context.method} encodes its parameters itself; leave it out, or compare other methods"
            )

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: OptionsT, facts: ModelFacts) -> None:
        """Changes the model before its parameters are counted, e.g. adds some. layout: of the unchanged model.

        What is added is drawn in the type of the model's parameters and moved to its device. A change of the forward
        pass is a hook that is a method of an added module (`fedbench.module.additions`), so that copies of the model
        have copies of it.
        """

    def common_shapes(self) -> list[tuple[int, ...]] | None:
        """Shapes that must be equal in all models for clients to have models of their own (`model=A,B`).

        Those of what clients exchange, for example `self.shared_shapes()`; an empty list if any models go together.
        None, the default: all clients have one model.
        """
        return None

    def shared_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors with shared entries, in the order of the shared vectors."""
        layout = self.context.layout
        kinds = (
            (layout.params, self.shared_params),
            (layout.buffers, self.shared_buffers),
            (layout.counters, self.shared_counters),
        )
        return [slot.shape for slots, part in kinds for slot in slots if part.mask[slot.start : slot.stop].any()]

    @classmethod
    def steps(cls, options: OptionsT, train: TrainConfig, samples: int, public: int) -> int:
        """Gradient steps of a participant per round after its first, for budgets and estimates.

        Every batch gradient that trains a model counts as one. samples: training images of the client; public: public
        images.
        """
        return AMOUNT.steps_on(samples, train)

    def private(self, layout: Layout) -> Masks:
        """The entries of the model that never leave the client."""
        return layout.nothing()

    def frozen(self, layout: Layout) -> Masks:
        """Entries that are neither trained nor sent nor kept: those of the start model, unless `receive` sets them."""
        return layout.nothing()

    def begin(self, client: Client[StateT]) -> None:
        """Sets the initial private state of a client."""

    def receive(self, client: Client[StateT]) -> Weights:
        """The client's model after it receives its message. Changes no state, buffer or random stream.

        It is given to `personal` (after_agg) and `train`, and called once for both. It may compute with the client's
        data, and train; it may return a subclass of Weights with more fields, which both then read.
        """
        initial, message, state = client.initial, client.message, client.state
        params = self.shared_params.put(initial.params, message.params)
        buffers = self.shared_buffers.put(initial.buffers, message.buffers)
        counters = initial.counters if state.counters is None else state.counters
        return Weights(
            params=self.private_params.put(params, state.params),
            buffers=self.private_buffers.put(buffers, state.buffers),
            counters=self.shared_counters.put(counters, message.counters),
        )

    def train(self, client: Client[StateT], received: Weights) -> Upload:
        """Trains, keeps the private part and returns the upload."""
        return self.upload(client, client.fit(received, client.train, move=self.moves))

    def outgoing(self, client: Client[StateT], received: Weights, upload: Upload) -> Upload:
        """The upload as it leaves the client, after every training: the place to clip, perturb or compress it.

        `upload.trained` stays at the client, as do `received` and the private entries.
        """
        return upload

    def reference(self, message: Message, upload: Upload) -> Tensor | None:
        """What `upload.params` would be if the client had changed nothing: by default the parameters it received.

        Clipping, compression and attacks take the client's update from there. The server must know it without noise, so
        that it is made of the message and of the upload's other fields alone. Where clients send a difference it is 0.
        """
        return message.tensors.get("params")

    def personal(self, client: Client[StateT], model: Weights, point: Point) -> Weights | Predictor | None:
        """The model evaluated at a point, from the trained model (after_fit) or the received one (after_agg).

        None if the point has no meaning in this round. Changes no state, buffer or random stream. At after_fit
        `client.message` is empty: a client that sits out has a later one by then. What is needed of it is put into the
        state, or into a subclass of Weights that `train` leaves in `upload.trained`.
        """
        return model

    def join(self, client: Client[StateT], received: Weights) -> Weights | Predictor:
        """The model of a newcomer after `client.epochs` local epochs, from what it received after the last round.

        A newcomer has the state of a client before round 1 and gets the message of `welcome`. By default it trains as
        any client does, with these epochs in place of the run's. Each call has a new client.
        """
        if not client.epochs:
            return self.personal(client, received, "after_agg") or received
        trained = self.train(client, received).trained
        assert trained is not None
        return self.personal(client, trained, "after_fit") or trained

    def start(self, initial: Weights) -> ServerT:
        """The server's initial state."""
        params, buffers = self.shared_params.take(initial.params), self.shared_buffers.take(initial.buffers)
        return cast("ServerT", self.Server(params, buffers, self.shared_counters.take(initial.counters)))

    def send(self, server: ServerT, client: int) -> Message:
        """The message to client number `client`. A tensor shared by several clients is sent to a host once."""
        return model_message(server.params, server.buffers, server.counters)

    def welcome(self, server: ServerT, client: int) -> Message:
        """The message to a newcomer, whose number `client` follows those of `context.clients`."""
        return self.send(server, client)

    @uses_aggregator
    @mean_suffices
    def aggregate(self, server: ServerT, uploads: list[Upload]) -> None:
        """Updates the server state from the uploads of a round, which are sorted by client and never empty.

        The server may keep their tensors, and may write to those that the client half does not keep.
        """
        aggregator = self.context.aggregator
        if len(uploads) < aggregator.fewest:
            server.warn(
                f"aggregator {aggregator.name}: a round had fewer than {aggregator.fewest} uploads, so the shared "
                "model was left unchanged"
            )
            return
        models, weights = [weights_of(u) for u in uploads], self.checked_weights(uploads)
        aggregator.generator = partial(self.context.generator, server.round, -1)
        server.set_model(aggregator.combine(models, weights, weights_of(server), server.aggregator))

    @mean_suffices
    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        """Weights of the uploads, which sum to 1: by training images, or uniform."""
        if self.options.weighting == "uniform":
            return [1 / len(uploads)] * len(uploads)
        return normalise([u.samples for u in uploads])

    def checked_weights(self, uploads: Sequence[Upload]) -> list[float]:
        """The weights of the uploads. Raises RunError if they are invalid."""
        weights = self.weights(uploads)
        try:
            numbers = [float(weight) for weight in weights]
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) == len(uploads) and abs(sum(numbers) - 1) < WEIGHTS_TOLERANCE:
            return numbers
        got = f"{len(numbers)} that sum to {sum(numbers):g}" if numbers else f"a value of type {type(weights).__name__}"
        raise RunError(
            f"{type(self).__name__}.weights must return one weight for each of {len(uploads)} uploads, summing to 1 "
            f"(see fedbench.aggregation.means.normalise); it returned {got}",
            place_of_code(self.weights),
        )

    def mean_model(self, uploads: Sequence[Upload], models: Sequence[Weights] = ()) -> Weights:
        """The mean of uploaded models, or of `models` of their clients, by `weights`, whatever the aggregator is."""
        weights = self.checked_weights(uploads)
        chosen = models or [weights_of(u) for u in uploads]
        return combine_by(chosen, lambda vectors: weighted_mean(vectors, weights))

    def idle_model(self, client: Client[StateT]) -> Weights:
        """The model evaluated as after_fit at a client that does not train, if no score of a fit is known.

        By default, before its first training: the start model with the client's private part. If a method overrides
        this, it is called again after every extra pass. `client.round` is the round of the delivered model, with
        which this is evaluated.
        """
        initial, state = client.initial, client.state
        return initial.replace(
            params=self.private_params.put(initial.params, state.params),
            buffers=self.private_buffers.put(initial.buffers, state.buffers),
        )

    def upload(
        self, client: Client[StateT], trained: Weights, *, traces: dict[str, float] | None = None, **more: MessageField
    ) -> Upload:
        """Keeps the private part of the trained model at the client and packs the rest with `more` fields."""
        if self.private_params.size:
            client.state.params = self.private_params.take(trained.params)
        if self.private_buffers.size:
            client.state.buffers = self.private_buffers.take(trained.buffers)
        if self.private_counters.size:
            client.state.counters = trained.counters
        fields: dict[str, MessageField] = {
            "params": self.shared_params.take(trained.params),
            "buffers": self.shared_buffers.take(trained.buffers),
            "counters": zero_bytes(self.shared_counters.take(trained.counters)),
        }
        return Upload(client.id, client.samples, trained, traces, **{**fields, **more})

    def global_model(self, server: ServerT, initial: Weights) -> Weights | None:
        """The global model to evaluate, or None: by default there is one if nothing is private."""
        private = self.private_params.size or self.private_buffers.size
        return None if private else self.whole_model(server, initial)

    def shared_part(self, server: ServerT, initial: Weights) -> Weights | None:
        """The part that the server sends to all clients alike, in a whole model: kept where there is no global model.

        Only tensors without private entries are kept of it. By default None if nothing is shared, or if `global_model`
        is overridden: its method decides what the server's vector means.
        """
        shares = self.shared_params.size and type(self).global_model is Method.global_model
        return self.whole_model(server, initial) if shares else None

    def whole_model(self, server: ServerT, initial: Weights) -> Weights:
        """The shared model of the server, with initial values for entries that it lacks."""
        return Weights(
            params=self.shared_params.put(initial.params, server.params),
            buffers=self.shared_buffers.put(initial.buffers, server.buffers),
            counters=self.shared_counters.put(initial.counters, server.counters),
        )


def decisions_in(text: str) -> list[str]:
    """The items of the list under the heading in a module's docstring, one line each."""
    _, _, below = text.partition(f"\n{DECISIONS_HEADING}\n")
    items = f"\n{below}".partition("\n\n")[0].split("\n- ")[1:]
    return [" ".join(item.split()) for item in items]


class ExtraPass(Method[OptionsT, StateT, ServerT]):
    """A method whose server may query all clients between two rounds; the traffic counts."""

    @abstractmethod
    def question(self, server: ServerT) -> Message | None:
        """The question to all clients after an aggregation (and before round 1), or None."""

    @abstractmethod
    def answer(self, client: Client[StateT]) -> Message:
        """A client's answer to the question, its message. Changes no state, buffer or random stream."""

    @abstractmethod
    def conclude(self, server: ServerT, answers: dict[int, Message]) -> None:
        """Updates the server state from the answers, by client."""
