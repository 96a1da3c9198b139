"""The hooks of a method. The defaults are FedAvg, so that a method says only in what it differs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedbench.aggregators import elementwise_max, normalised, weighted_mean
from fedbench.config import Section, TrainConfig
from fedbench.learner import seeds
from fedbench.learner.layout import Layout, ranges_of
from fedbench.learner.learner import Batches, Learner
from fedbench.learner.weights import Weights

POOL = -1
"""Client number of the union of all clients' data."""

MOST_SLICES = 64
"""A part of more runs of entries than this is indexed by its mask."""

Predictor = Weights | Callable[[Batches], Tensor]


@dataclass(frozen=True)
class Context:
    """What both halves know of a run.

    sizes: training images per client; public: public images; `rounds` is T; drawn: participants of a round.
    """

    layout: Layout
    train: TrainConfig
    seed: int
    rounds: int
    classes: int
    sizes: tuple[int, ...]
    public: int = 0
    drawn: int = 1

    @property
    def clients(self) -> int:
        return len(self.sizes)


@dataclass
class Message:
    """One client's payload in one direction: named tensors, read as attributes.

    bits: bits per element that a real encoding would send, where it is not the size of the dtype (0: not sent at all).
    charge: bytes counted instead of the sum over the tensors, where the message is not what would be sent.
    given: names of tensors of a download that no other client is sent and the server half never reads again once the
    client's upload is there: large ones make room for uploads.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    bits: Mapping[str, float] = field(default_factory=dict)
    charge: int | None = None
    given: Collection[str] = ()

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self.__dict__["tensors"][name]
        except KeyError:
            raise AttributeError(
                f"the message has no '{name}': it holds {sorted(self.__dict__.get('tensors', {}))}"
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def wire_bytes(self) -> int:
        """Bytes on the wire, every tensor rounded up to whole bytes."""
        if self.charge is not None:
            return self.charge
        return sum(ceil(t.numel() * self.bits.get(n, 8 * t.element_size()) / 8) for n, t in self.tensors.items())


@dataclass
class Upload(Message):
    """What a client sends: its number, its training images, and scalars to be traced."""

    client: int = 0
    samples: int = 0
    traces: dict[str, float] = field(default_factory=dict)


@dataclass
class Client:
    """One client on the host that works for it.

    state: its private state, tensors and plain values, kept across rounds and in checkpoints. fitted: the predictor
    to evaluate at `after_fit`, set by `Method.upload`. public: the unlabelled public images, or None.
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
    round: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    fitted: Predictor | None = None

    def generator(self, purpose: str) -> torch.Generator:
        """A stream of its own for (seed, client, round, purpose)."""
        return seeds.generator(self.seed, self.id, self.round, purpose)

    def memory(self, purpose: str) -> dict[str, Any] | None:
        """Where the optimiser of this phase is kept between rounds; None unless `train.keep_optimizer`."""
        if not self.learner.train.keep_optimizer:
            return None
        return self.state.setdefault(f"optimizer/{purpose}", {})


@dataclass(eq=False)
class Received(Weights):
    """What `receive` gives together with what it worked out on the way, for `fit` to go on with."""

    extra: dict[str, Tensor] = field(default_factory=dict)

    def clone(self) -> "Received":
        return Received(**vars(super().clone()), extra={name: tensor.clone() for name, tensor in self.extra.items()})


@dataclass
class Server:
    """The server half's state: whatever attributes a method sets are kept in checkpoints.

    round: the round under way, from 1; participants: the clients drawn for it, ascending.
    """

    context: Context
    initial: Weights
    round: int = 0
    participants: list[int] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("context", "initial")}

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


@dataclass
class OneBatch:
    """A batch as data of its own. x: `[b, ...]`; y: `[b]`."""

    x: Tensor
    y: Tensor
    key: tuple[int | str, ...]

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Part:
    """Some entries of a vector: all, none, or those of a mask."""

    def __init__(self, mask: Tensor) -> None:
        self.mask, self.size = mask, int(mask.sum())
        self.all = self.size == len(mask)
        # Slices take a sixth of the time of a mask, or less: 3 to 14 ms for a million entries.
        runs = ranges_of(mask, MOST_SLICES)
        self._places: list[Any] = [mask] if runs is None else [slice(*run) for run in runs or [(0, 0)]]
        self._sizes = [self.size] if runs is None else [stop - start for start, stop in runs or [(0, 0)]]

    def take(self, vector: Tensor) -> Tensor:
        """These entries: the vector itself where the part is all of it."""
        return vector if self.all else torch.cat([vector[place] for place in self._places])

    def put(self, vector: Tensor, values: Tensor) -> Tensor:
        """A copy of `vector` with these entries exchanged."""
        if self.all:
            return values
        if not self.size:
            return vector
        out = vector.clone()
        for place, piece in zip(self._places, values.split(self._sizes), strict=True):
            out[place] = piece
        return out


class Method:
    """A federated method: the client half, the server half and its options. The base class is FedAvg.

    train_defaults: the method's own defaults of `train.*` keys. after_fit: where the metrics of the point after_fit
    come from: the fit, or another point that is the same by definition. needs_head, needs_public: what it cannot do
    without. own_epochs: the method names its epochs itself and refuses `train.steps`. own_steps: it makes plain steps
    itself (`Learner.fit(step=...)`), so that the optimiser and its momentum, decay and memory have no part in them.
    own_optimizer: it makes them with an optimiser that it brings, never with the module's.
    """

    class Options(Section):
        """Options as `method.<name>`."""

        weighting: Literal["samples", "uniform"] = Field(
            "samples", description="weight of a client in the mean: its training images, or the same for all"
        )
        buffers: Literal["average", "private"] = Field(
            "average", description="running statistics: averaged with the parameters, or never leave the client"
        )

    train_defaults: ClassVar[dict[str, Any]] = {}
    after_fit: ClassVar[Literal["fit", "after_agg", "global"]] = "fit"
    needs_head: ClassVar[bool] = False
    needs_public: ClassVar[bool] = False
    own_epochs: ClassVar[bool] = False
    own_steps: ClassVar[bool] = False
    own_optimizer: ClassVar[bool] = False
    wire: Mapping[str, float] = {"counters": 0}

    def __init__(self, options: Any, context: Context) -> None:
        self.options, self.context = options, context
        params, buffers = self.private(context.layout)
        if options.buffers == "private":
            buffers = torch.ones_like(buffers)
        self.shared, self.shared_buffers = Part(~params), Part(~buffers)
        self.own, self.own_buffers = Part(params), Part(buffers)
        self.own_counters = Part(self.private_counters(context.layout, buffers))

    # -- what a method may change -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ConfigError for combinations of options that make no sense; called before round 1."""

    def warnings(self) -> list[str]:
        """Lines to say once before round 1."""
        train = self.context.train
        idle = [k for k in ("momentum", "weight_decay", "keep_optimizer") if self.own_steps and getattr(train, k)]
        if self.own_steps and train.optimizer not in ("auto", "sgd"):
            idle.append("optimizer")
        keys = ", ".join(f"train.{key} = {getattr(train, key)}" for key in idle)
        return [f"{type(self).__name__} makes plain steps of its own, without effect: {keys}"] if idle else []

    def remarks(self, server: Server) -> list[str]:
        """Lines to say after an aggregation; of equal ones only the first is said."""
        return []

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Any, seed: int) -> None:
        """Change the model before its parameters are counted, for example add some; layout: of the model as it is."""

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """Masks `[N]` and `[M]` of the parameters and float buffers that never leave the client."""
        return torch.zeros(layout.size, dtype=torch.bool), torch.zeros(layout.buffer_size, dtype=torch.bool)

    def private_counters(self, layout: Layout, buffers: Tensor) -> Tensor:
        """Mask `[c]` of the counters that never leave the client; `buffers` `[M]` are the float buffers that do not."""
        return layout.counters_beside(buffers)

    def trainers(self, drawn: Sequence[int]) -> list[int]:
        """Who trains in a round, given the clients drawn; `POOL` stands for the union of all data."""
        return list(drawn)

    def start(self, client: Client) -> None:
        """Set the first private state of a client."""

    def receive(self, client: Client, download: Message) -> Weights:
        """What the client starts a round from. Changes no state, buffer or random stream."""
        held, initial = client.state, client.initial
        params = self.shared.put(initial.params, download.params)
        buffers = self.shared_buffers.put(initial.buffers, download.buffers)
        return Weights(
            params=self.own.put(params, held["params"]) if "params" in held else params,
            buffers=self.own_buffers.put(buffers, held["buffers"]) if "buffers" in held else buffers,
            counters=self.own_counters.put(
                download.counters, self.own_counters.take(held.get("counters", initial.counters))
            ),
        )

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        """Train, keep what is private, return what is sent."""
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"))
        return self.upload(client, trained)

    def untrained(self, client: Client) -> Predictor:
        """The predictor to evaluate at after_fit before the client's first fit."""
        return client.initial

    def personal(self, client: Client, download: Message) -> Predictor:
        """The predictor to evaluate at after_agg. Changes no state, buffer or random stream."""
        return self.receive(client, download)

    def open(self, server: Server) -> None:
        """Set the server's first state."""
        server.params = self.shared.take(server.initial.params)
        server.buffers = self.shared_buffers.take(server.initial.buffers)
        server.counters = server.initial.counters

    def prepare(self, server: Server) -> None:
        """Called when a round's participants are drawn, before its downloads are made."""

    def download(self, server: Server, client: int) -> Message:
        """What client number `client` is sent now. Tensors that several clients share are sent to a host once."""
        return self.message(params=server.params, buffers=server.buffers, counters=server.counters)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        """Turn the uploads of a round, ascending by client and never empty, into the server's next state.

        Their tensors are the server's: it may keep them, and write to those that the client half does not keep too.
        """
        weights = self.weights(uploads)
        server.params = weighted_mean([u.params for u in uploads], weights)
        server.buffers = weighted_mean([u.buffers for u in uploads], weights)
        server.counters = elementwise_max([u.counters for u in uploads])

    def survey(self, server: Server) -> Message | None:
        """After an aggregation (and before round 1): what to ask all clients in an extra pass, or None."""
        return None

    def answer(self, client: Client, question: Message) -> Message:
        """A client's answer to a survey. Changes no state, buffer or random stream."""
        raise TypeError(f"{type(self).__name__} asks a survey and answers none")

    def conclude(self, server: Server, answers: dict[int, Message]) -> None:
        """The server half's use of the answers of a survey."""

    def global_weights(self, server: Server) -> Weights | None:
        """The global model, where the method has one."""
        if not (self.shared.all and self.shared_buffers.all):
            return None
        return Weights(server.params, server.buffers, server.counters)

    @property
    def personal_is_global(self) -> bool:
        """Whether every client's personal model is the global one, which then need not be evaluated twice."""
        return type(self).personal is Method.personal and type(self).receive is Method.receive

    def reports(self, point: str, round: int) -> bool:
        """Whether this point has a meaning in this round."""
        return True

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        """Scalars of a round to be traced, by (client, name); client -1 is the server."""
        return {}

    # -- what a method uses -------------------------------------------------------------------------------------------

    def message(self, **tensors: Tensor) -> Message:
        """A message whose wire size follows `wire`."""
        return Message(tensors, self.wire)

    def upload(
        self, client: Client, trained: Weights, *, traces: dict[str, float] | None = None, **extra: Tensor
    ) -> Upload:
        """Keep the private part of the trained model at the client and pack the rest with `extra` tensors."""
        client.fitted = trained
        if self.own.size:
            client.state["params"] = self.own.take(trained.params)
        if self.own_buffers.size:
            client.state["buffers"] = self.own_buffers.take(trained.buffers)
        if self.own_counters.size:
            client.state["counters"] = trained.counters
        tensors = dict(
            params=self.shared.take(trained.params),
            buffers=self.shared_buffers.take(trained.buffers),
            counters=trained.counters,
            **extra,
        )
        return Upload(tensors, self.wire, client=client.id, samples=client.samples, traces=traces or {})

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        """Weights of the uploads, summing to 1: by training images, or uniform."""
        if self.options.weighting == "uniform":
            return [1 / len(uploads)] * len(uploads)
        return normalised([u.samples for u in uploads])
