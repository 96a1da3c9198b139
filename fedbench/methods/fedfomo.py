"""FedFomo: first order model optimisation (Zhang, Sapra, Fidler, Yeung, Alvarez; ICLR 2021).

Private: held-out images, and the model at which the last training began. Up: the trained model and the weights of the
received ones; down: some other clients' last models, chosen for the client by how much such models helped it before.
The client starts from a mixture of its own model and those that lower its held-out loss.

Where we decide:
- The reference is the model before the last training, as in the authors' code and PFLlib, so that the own trained model
  is a candidate too; FL-bench compares with the trained model (`baseline=trained`).
- Distances are Euclidean over all parameters (paper); the authors' code takes sums of absolute values (`norm=l1`).
- `models` counts other clients; the authors' 5 and 10 include the client's own.
- Affinities are sums of raw weights from 0 (paper and libraries); the code normalises them.
- Models of the last round's participants can be had, as in the code; `pool=all`: every client's last one.
- Float buffers are mixed like parameters. The models that are sent for evaluation alone are not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import combine_by
from fedbench.aggregation.means import weighted_mean
from fedbench.config import TrainConfig
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState, held_count
from fedbench.methods.messages import Message, Upload, encoded, number_models, zero_bytes
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights


@dataclass(eq=False)
class FomoStart(Weights):
    """A client's start, and the signed weights of its own and the received models `[1 + M]`."""

    weights: Tensor


class FedFomo(Method["FedFomo.Options", "FedFomo.State", "FedFomo.Server"]):
    """Every client mixes the models of others that lower its own held-out loss."""

    about = About(
        "clients mix those models of others that lower their held-out loss",
        "personalised aggregation",
        "Zhang et al., ICLR",
        2021,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "local": {"method.models": 0, "method.val_fraction": 0, "method.baseline": "trained"},
    }

    also_sends = "their whole models to other clients"

    class Options(Method.Options):
        weighting: ClassVar[Any] = None  # type: ignore[misc] # no option: no mean is formed
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: models are mixed whole
        models: int = Field(5, ge=0, description="models of other clients that a client gets, M")
        val_fraction: float = Field(0.2, ge=0, lt=1, description="share of samples held out; 0: all serve for both")
        val_pick: Literal["random", "tail"] = Field("random", description="which: drawn once, or the last ones")
        epsilon: float = Field(0.3, ge=0, le=1, description="probability of a random model in round 1")
        epsilon_decay: float = Field(0.05, ge=0, description="what it falls by in every round")
        baseline: Literal["start", "trained"] = Field(
            "start", description="reference of the weights: the model before the last training, or after it"
        )
        norm: Literal["l2", "l1"] = Field("l2", description="distance between models")
        affinity: Literal["raw", "normalised"] = Field("raw", description="what is added up of the weights")
        pool: Literal["last", "all"] = Field("last", description="whose models: of the last round, or of all")
        ties: Literal["random", "cyclic"] = Field("random", description="order of clients of equal affinity")

    @dataclass
    class State(PrivateState):
        start: Weights | None = None

    @dataclass
    class Server(ServerState):
        """models: every client's last; affinity: P `[n, n]`; last: who uploaded in the last round."""

        models: dict[int, Weights] = field(default_factory=dict)
        affinity: Tensor = UNSET
        last: list[int] = field(default_factory=list)

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        held = held_count(samples, options.val_fraction) if options.val_fraction else 0
        return super().steps(options, train, samples - held, public)

    def private(self, layout: Layout) -> Masks:
        return layout.everything()

    def parts(self, client: Client[State]) -> tuple[Any, Any]:
        """The images to train on, and those by which models are judged."""
        if not self.options.val_fraction or client.samples == 1:
            return client.train, client.train
        return client.split(self.options.val_fraction, "validation" if self.options.val_pick == "random" else None)

    def receive(self, client: Client[State]) -> FomoStart:
        own, held, loss = super().receive(client), self.parts(client)[1], client.learner.loss
        base = own if self.options.baseline == "trained" else client.state.start or client.initial
        candidates = [own, *client.message.models("model")]
        losses = [loss(model, held) for model in candidates]
        distances = [distance(model.params, base.params, self.options.norm) for model in candidates]
        weights = first_order_weights(loss(base, held), losses, distances)
        return FomoStart(**vars(mixture(base, candidates, weights)), weights=torch.tensor(weights, dtype=torch.float64))

    def train(self, client: Client[State], received: Weights) -> Upload:
        assert isinstance(received, FomoStart)
        start = Weights(received.params, received.buffers, received.counters)
        trained = client.fit(start, self.parts(client)[0])
        client.state.start, weights = start, received.weights
        if self.options.affinity == "normalised":
            weights = weights / max(abs(float(weights.sum())), 1e-9)
        upload = self.upload(client, trained, model=trained, others=zero_bytes(client.message.others))
        upload.add(weights=encoded(weights[1:], bits=32))
        return upload

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.affinity = torch.zeros(self.context.clients, self.context.clients, dtype=torch.float64)
        return server

    def send(self, server: Server, client: int) -> Message:
        chosen = self.choose_models(server, client)
        others = zero_bytes(torch.tensor(chosen, dtype=torch.int64))
        models = number_models("model", [server.models[j] for j in chosen])
        return super().send(server, client).add(others=others, **models)

    def choose_models(self, server: Server, client: int) -> list[int]:
        """The clients whose models a client gets in this round."""
        options, clients = self.options, self.context.clients
        pool = server.last if options.pool == "last" else server.models
        order = sorted((j for j in pool if j != client), key=lambda j: (j - client) % clients)
        draw = self.context.generator(server.round, client, "affinity")
        if options.ties == "random":
            order = [order[index] for index in torch.randperm(len(order), generator=draw).tolist()]
        affinity = server.affinity[client] if client < clients else torch.zeros(clients)  # of a newcomer
        epsilon = max(options.epsilon - options.epsilon_decay * (server.round - 1), 0)
        models: list[int] = []
        while order and len(models) < options.models:
            if float(torch.rand(1, generator=draw)) < epsilon:
                index = int(torch.randint(len(order), (1,), generator=draw))
            else:
                index = max(range(len(order)), key=lambda at: float(affinity[order[at]]))
            models.append(order.pop(index))
        return models

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        server.affinity = server.affinity.clone()
        for u in uploads:
            server.models[u.client] = u.model
            server.affinity[u.client, u.others] += u.weights.to(server.affinity)
        server.last = [u.client for u in uploads]
        if server.traces_pairs(self.context.clients, self.context):
            for u in uploads:
                for other, weight in enumerate(server.affinity[u.client].tolist()):
                    if other != u.client:
                        server.trace(f"affinity/{other}", weight, u.client)


def distance(one: Tensor, other: Tensor, norm: str) -> float:
    """Distance of two vectors `[N]`, in float64."""
    apart = (one - other).to(torch.float64)
    return float(apart.abs().sum() if norm == "l1" else apart.square().sum().sqrt())


def first_order_weights(loss: float, losses: Sequence[float], distances: Sequence[float]) -> list[float]:
    """How much the loss falls to each candidate per unit of distance; 0 for the reference itself."""
    return [(loss - other) / far if far else 0.0 for other, far in zip(losses, distances, strict=True)]


def mixture(base: Weights, candidates: Sequence[Weights], weights: Sequence[float]) -> Weights:
    """The mean of the candidates by their positive weights; the reference if there are none."""
    chosen = [(model, weight) for model, weight in zip(candidates, weights, strict=True) if weight > 0]
    if not chosen:
        return base
    total = sum(weight for _, weight in chosen)
    shares = [weight / total for _, weight in chosen]
    return combine_by([model for model, _ in chosen], lambda vectors: weighted_mean(vectors, shares))
