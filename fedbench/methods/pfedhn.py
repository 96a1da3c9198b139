"""pFedHN and pFedHN-PC: hypernetworks (Shamsian, Navon, Fetaya, Chechik; ICML 2021).

Private: running statistics, and with `variant=pc` the head. Down: the client's own model, which a network at the server
generates from the client's embedding; up: how far the client moved it. The server pulls these moves back through its
network, and steps it and the participants' embeddings. Network, embeddings and optimiser never leave the server.

Where we decide:
- Paper and code draw one client a round. With several, the network moves by the mean over them, the gradient of the
  paper's objective (`phi_update=sum`: as in so many rounds), and each embedding by its own full gradient.
- Embeddings of clients that sit out stay; in the code momentum and decay of the whole table move them.
- Gradients are clipped at norm 50 at both places, exactly, and at the client those of the generated parameters only.
- Momentum of private heads follows `train.keep_optimizer`; batches come from the common loader.
- Layers are drawn at one scale, as in the code. `hyper_init=w0` starts from the run's model, for models with BatchNorm.
- A newcomer's embedding is drawn like the others were, and gets a step after each local epoch.
- Adam, spectral norm and clients of other sizes are not here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import sqrt
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedbench.engine.fit import Amount, Step
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, zero_bytes
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights

MANY = 10**9
"""Numbers at the server above which a warning is given."""


class PFedHN(Method["PFedHN.Options", PrivateState, "PFedHN.Server"]):
    """A network at the server generates every client's model from the client's embedding."""

    about = About(
        "a network at the server generates every client's model", "hypernetwork", "Shamsian et al., ICML", 2021
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"pfedhn:phi_update=sum": {"participation": 0.3}}

    class Options(Method.Options):
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: they stay at the client
        weighting: Literal["uniform", "samples"] = Field(
            "uniform", description="weight of a client's move: the same for all, or its training samples"
        )
        variant: Literal["full", "pc"] = Field("full", description="generated: the whole model, or all but the head")
        embed_dim: int | None = Field(
            None, ge=1, description="size of an embedding; none: 1 + a quarter of the clients"
        )
        hidden_dim: int = Field(100, ge=1, description="width of the network")
        n_hidden: int = Field(3, ge=0, description="hidden layers")
        server_lr: float | None = Field(
            None,
            ge=0,
            description="rate of the network; none: 0.01, with variant=pc 0.05",
            json_schema_extra={"rate": "own"},
        )
        embed_lr: float | None = Field(
            None,
            ge=0,
            description="rate of the embeddings; none: that of the network",
            json_schema_extra={"rate": "own"},
        )
        server_momentum: float = Field(0.9, ge=0, lt=1, description="momentum of both")
        server_weight_decay: float = Field(1e-3, ge=0, description="weight decay of both")
        clip: float | None = Field(50.0, gt=0, description="largest norm of a gradient, at client and server; none")
        phi_update: Literal["mean", "sum"] = Field("mean", description="the network moves by the mean, or by the sum")
        hyper_init: Literal["random", "w0", "constant"] = Field(
            "random", description="first network: drawn; drawn around the run's model; or that model for all"
        )

    @dataclass
    class Server(ServerState):
        """phi: weights and biases of the network, in order; embeddings: `[n, d]`; trained: who has trained."""

        phi: list[Tensor] = field(default_factory=list)
        velocity: list[Tensor] = field(default_factory=list)
        embeddings: Tensor = UNSET
        embedding_velocity: Tensor = UNSET
        trained: list[int] = field(default_factory=list)

    train_defaults: ClassVar[dict[str, Any]] = {
        "lr": 0.005,
        "momentum": 0.9,
        "weight_decay": 5e-5,
        "steps": 50,
        "batch_size": 64,
    }

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Outputs and inputs of the network's layers; one output layer for each generated tensor, then joined."""
        options, clients, private = self.options, self.context.clients, self.private(self.context.layout).params
        width = options.hidden_dim
        first = (width, options.embed_dim or int(1 + clients / 4))
        outputs = [(s.size, width) for s in self.context.layout.params if not private[s.start]]
        return [first, *[(width, width)] * options.n_hidden, *outputs]

    def check(self) -> Iterable[str]:
        if self.options.variant == "pc":
            self.context.layout.mask("head")
        size = sum(rows * (columns + 1) for rows, columns in self.sizes) + self.context.clients * self.sizes[0][1]
        if size > MANY:
            yield f"pfedhn: the server's network has {size} numbers, twice with momentum: lower method.hidden_dim"

    def private(self, layout: Layout) -> Masks:
        head = layout.masks("head") if self.options.variant == "pc" else layout.nothing()
        return Masks(head.params, torch.ones_like(head.buffers))

    def train(self, client: Client, received: Weights) -> Upload:
        trained = client.fit(received, client.train, step=self.local_step(received))
        upload = self.upload(client, trained)
        return upload.add(params=self.shared_params.take(received.params - trained.params))  # type: ignore[return-value]

    def reference(self, message: Message, upload: Upload) -> Tensor:
        """0: clients send how far they moved their model."""
        return torch.zeros_like(message.params)

    def local_step(self, model: Weights) -> Step | None:
        clip, generated = self.options.clip, self.shared_params.mask.to(model.params)
        return None if clip is None else Step(clip_generated, generated=generated, clip=clip)

    def join(self, client: Client, received: Weights) -> Weights:
        """The embedding alone is fitted, by the server's step after every local epoch; the network stays."""
        options, message, model = self.options, client.message, received
        phi = [getattr(message, f"phi{number}") for number in range(2 * (options.n_hidden + 2))]
        embedding, velocity = message.embedding, torch.zeros_like(message.embedding)
        settings = self.rates(client.decay)[1], options.server_momentum, options.server_weight_decay
        for epoch in range(client.epochs or 0):
            local = self.local_step(model)
            trained = client.fit(model, client.train, f"join/{epoch}", Amount(epochs=1), step=local)
            moves = self.shared_params.take(model.params - trained.params)[None]
            *_, slopes = pulled_back(embedding[None], phi, moves, moves.new_ones(1))
            (slope,) = clip_gradients([slopes[0]], options.clip)
            embedding, velocity = step(embedding, slope, velocity, *settings)
            params = self.shared_params.put(trained.params, generate(embedding, phi))
            model = trained.replace(params=params)
        return model

    def rates(self, decay: float) -> tuple[float, float]:
        """The rates of the network and of the embeddings."""
        options, usual = self.options, 0.05 if self.options.variant == "pc" else 0.01
        rate = usual if options.server_lr is None else options.server_lr
        return rate * decay, (rate if options.embed_lr is None else options.embed_lr) * decay

    def idle_model(self, client: Client) -> Weights:
        """What the first network generates, with the first head."""
        first = client.message.first if "first" in client.message else client.message.params
        return super().idle_model(client).replace(params=self.shared_params.put(client.initial.params, first))

    @cached_property
    def initial_draw(self) -> tuple[Tensor, list[Tensor]]:
        """First embeddings and network of `hyper_init=random`; the output layers are joined."""
        stream = torch.Generator().manual_seed(self.context.seed)
        dtype = torch.float64 if self.context.train.precision == "64-true" else torch.float32
        embeddings = torch.randn(self.context.clients, self.sizes[0][1], generator=stream, dtype=dtype)
        layers = [
            [
                (2 * torch.rand(shape, generator=stream, dtype=dtype) - 1) / sqrt(columns)
                for shape in ((rows, columns), (rows,))
            ]
            for rows, columns in self.sizes
        ]
        inner = 1 + self.options.n_hidden
        outputs = [torch.cat(parts) for parts in zip(*layers[inner:], strict=True)]
        return embeddings, [*chain.from_iterable(layers[:inner]), *outputs]

    def first_network(self, start: Tensor) -> list[Tensor]:
        """The network before round 1; start: the generated part of the run's model."""
        phi, init = self.initial_draw[1], self.options.hyper_init
        if init == "constant":
            phi = [torch.zeros_like(part) for part in phi]
        return phi if init == "random" else [*phi[:-1], start]

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.embeddings, server.phi = self.initial_draw[0], self.first_network(server.params)
        server.embedding_velocity = torch.zeros_like(server.embeddings)
        server.velocity = [torch.zeros_like(part) for part in server.phi]
        return server

    def send(self, server: Server, client: int) -> Message:
        message, embedding = super().send(server, client), server.embeddings[client]
        message.add(params=generate(embedding, server.phi))
        if client in server.trained or server.round == 1:
            return message
        return message.add(first=zero_bytes(generate(embedding, self.first_network(server.params))))

    def welcome(self, server: Server, client: int) -> Message:
        """The network, and a new embedding."""
        stream, like = self.context.generator(server.round, client, "embedding"), server.embeddings
        embedding = torch.randn(like.shape[1], generator=stream, dtype=like.dtype)
        phi = {f"phi{number}": zero_bytes(part) for number, part in enumerate(server.phi)}
        model = super().send(server, client).add(params=generate(embedding, server.phi))
        return model.add(embedding=zero_bytes(embedding), **phi)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        options, clients = self.options, [u.client for u in uploads]
        weights = torch.tensor(self.checked_weights(uploads), dtype=server.embeddings.dtype)
        weights *= len(uploads) if options.phi_update == "sum" else 1
        moves = torch.stack([u.params for u in uploads])
        slopes = clip_gradients(pulled_back(server.embeddings[clients], server.phi, moves, weights), options.clip)
        rate, own_rate = self.rates(self.context.train.decay(server.round))
        settings = options.server_momentum, options.server_weight_decay
        parts = zip(server.phi, slopes, server.velocity, strict=False)
        stepped = [step(*part, rate, *settings) for part in parts]
        server.phi, server.velocity = [part for part, _ in stepped], [velocity for _, velocity in stepped]
        before, velocity = server.embeddings[clients], server.embedding_velocity[clients]
        rows, velocities = step(before, slopes[-1], velocity, own_rate, *settings)
        server.embeddings, server.embedding_velocity = server.embeddings.clone(), server.embedding_velocity.clone()
        server.embeddings[clients], server.embedding_velocity[clients] = rows, velocities
        server.trained = sorted({*server.trained, *clients})

    def global_model(self, server: Server, initial: Weights) -> None:
        """None: every client has its own model."""


def clip_generated(g: Tensor, w: Tensor, s: Any) -> None:
    """Scales the gradient of the entries marked by `s.generated` to norm `s.clip` if it is longer."""
    length = torch.linalg.vector_norm(g * s.generated, dim=-1, keepdim=True)
    g.mul_(1 + s.generated * ((s.clip / length.clamp(min=1e-30)).clamp(max=1) - 1))


def generate(embedding: Tensor, phi: Sequence[Tensor]) -> Tensor:
    """The model `[..., G]` of an embedding `[..., d]`; phi: weight and bias of every layer."""
    first, *layers = zip(phi[::2], phi[1::2], strict=True)
    features = F.linear(embedding, *first)
    *hidden, output = layers
    for layer in hidden:
        features = F.linear(features.relu(), *layer)
    return F.linear(features, *output)


def pulled_back(embeddings: Tensor, phi: Sequence[Tensor], moves: Tensor, weights: Tensor) -> list[Tensor]:
    """Moves `[m, G]` pulled back to the network, weighted `[m]`, and each in full to its embedding `[m, d]`."""
    with torch.enable_grad():
        given = [part.detach().requires_grad_() for part in (*phi, embeddings)]
        along = (generate(given[-1], given[:-1]) * moves).sum(1)
        *slopes, rows = torch.autograd.grad((along * weights).sum(), given)
    return [*slopes, rows / weights[:, None]]


def clip_gradients(slopes: Sequence[Tensor], most: float | None) -> list[Tensor]:
    """Gradients scaled to this norm as one vector if they are longer."""
    length = sqrt(sum(float(slope.square().sum(dtype=torch.float64)) for slope in slopes))
    return [*slopes] if most is None or length <= most else [slope * (most / length) for slope in slopes]


def step(
    value: Tensor, slope: Tensor, velocity: Tensor, rate: float, momentum: float, decay: float
) -> tuple[Tensor, Tensor]:
    """A step of SGD: the new value and velocity."""
    velocity = momentum * velocity + slope + decay * value
    return value - rate * velocity, velocity
