"""FedAMP and HeurFedAMP (Huang, Chu, Zhou, Wang, Liu, Pei, Zhang; AAAI 2021): similar models attract each other.

Private: the data, the step counters of BatchNorm and, with `bn_stats=local`, its running statistics. Up: the client's
model; down: a mixture of all clients' models for this client alone, to which its training is pulled.

Where we decide:
- The weight of j for i is alpha A'(|w_i - w_j|^2) with A(x) = 1 - exp(-x / sigma), as in the paper's update; the pair
  term differentiated exactly has a 2, which is inside alpha. Norms are squared, in the pull too.
- If the others' weights sum to more than 1, they are divided by their sum and the client's own weight is 0. Popular
  code continues with a negative weight and diverges.
- The paper defines a model as a minimiser and leaves open where training starts: from the mixture (`start=cloud`), or
  from the client's own model; the client then keeps its model, and the mixture's statistics are unused and unsent.
- alpha falls, but never below lr x lam, below which a step of the pull would overshoot the mixture.
- The server mixes the last upload of every client, w^0 before the first, for all clients, whoever takes part.
- Popular code pulls with an unsquared norm, and its alpha = sigma = 1 makes all weights vanish for a large net.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import dot_products, mixtures
from fedbench.engine.fit import Step
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.fedprox import proximal_pull
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights
from fedbench.results.trace import weight_trace


class FedAMP(Method["FedAMP.Options", "FedAMP.State", "FedAMP.Server"]):
    """Every client gets its own mixture of all models, in which similar models weigh more."""

    about = About(
        "similar models attract each other: every client is pulled to a mixture of its own",
        "personalised aggregation",
        "Huang et al., AAAI",
        2021,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "local": [
            {"method.variant": "heur", "method.self_weight": 1, "method.lam": 0},
            {"method.start": "local", "method.lam": 0},
        ],
    }
    traces = (weight_trace("weight"),)

    class Options(Method.Options):
        variant: Literal["fedamp", "heur"] = Field(
            "fedamp",
            description="weights by A' of squared distances (Algorithm 1), or softmax of cosines (HeurFedAMP)",
        )
        alpha: float = Field(
            1e4, gt=0, description="step size of the mixing in round 1, Algorithm 1; the pull is divided by it"
        )
        alpha_decay: float = Field(0.1, gt=0, le=1, description="factor of alpha after every decay_interval rounds")
        decay_interval: int = Field(30, ge=1, description="rounds between two decays of alpha")
        sigma: float | None = Field(
            None, ge=0, description="width of A, or sharpness of the softmax; none: 1e6 (fedamp), 25 (heur)"
        )
        lam: float = Field(
            1.0, ge=0, description="weight of the pairs of models: the pull to the mixture is lam / alpha"
        )
        self_weight: float | None = Field(
            None, ge=0, le=1, description="own weight of variant=heur; none: one of the number of clients"
        )
        start: Literal["cloud", "local"] = Field(
            "cloud", description="where training starts: the mixture, or the client's own model"
        )
        bn_stats: Literal["mix", "local"] = Field(
            "mix", description="running statistics: mixed with the parameters, or never sent"
        )
        weighting: ClassVar[Any] = None  # type: ignore[misc] # no option: similarity alone decides
        buffers: ClassVar[Any] = None  # type: ignore[misc] # bn_stats says what becomes of them

    @dataclass
    class State(PrivateState):
        """trained: with `start=local`, the parameters of the client's own model."""

        trained: Tensor | None = None

    @dataclass
    class Server(ServerState):
        """models, model_buffers: every client's last upload; clouds, cloud_buffers: every client's mixture."""

        models: dict[int, Tensor] = field(default_factory=dict)
        model_buffers: dict[int, Tensor] = field(default_factory=dict)
        clouds: list[Tensor] = field(default_factory=list)
        cloud_buffers: list[Tensor] = field(default_factory=list)

    def check(self) -> tuple[str, ...]:
        options = self.options
        self.refuse_newcomers("a client gets a mixture by the similarity of its last model, which a newcomer lacks")
        if options.variant == "fedamp" and options.self_weight is not None:
            raise ConfigError(
                f"method.self_weight = {options.self_weight:g}: only method.variant = heur sets it; leave it out"
            )
        if options.variant == "fedamp" and options.sigma == 0:
            raise ConfigError("method.sigma = 0: must be a number > 0 with method.variant = fedamp")
        return ()

    def private(self, layout: Layout) -> Masks:
        local = self.options.bn_stats == "local" or self.options.start == "local"
        buffers, counters = torch.full((layout.buffer_size,), local), torch.full((layout.counter_size,), True)
        return Masks(layout.nothing().params, buffers, counters)

    def alpha(self, round: int) -> float:
        """alpha_t, never below lr x lam."""
        falls = ceil(round / self.options.decay_interval) - 1
        least = self.context.train.lr * self.options.lam
        return max(self.options.alpha * self.options.alpha_decay**falls, least)

    def receive(self, client: Client[State]) -> Weights:
        received = super().receive(client)
        if self.options.start == "cloud":
            return received
        trained = client.state.trained
        return received.replace(params=client.initial.params if trained is None else trained)

    def train(self, client: Client[State], received: Weights) -> Upload:
        pull = None
        if self.options.lam:
            pull = Step(proximal_pull, anchor=client.message.params, mu=self.options.lam / self.alpha(client.round))
        trained = client.fit(received, client.train, step=pull)
        if self.options.start == "local":
            client.state.trained = trained.params
        return self.upload(client, trained)

    def send(self, server: Server, client: int) -> Message:
        """The client's mixture: a row that the next aggregation overwrites."""
        message = super().send(server, client)
        if server.clouds:
            message.add(params=server.clouds[client], buffers=server.cloud_buffers[client])
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        server.models.update({u.client: u.params for u in uploads})
        server.model_buffers.update({u.client: u.buffers for u in uploads})
        everyone = range(self.context.clients)
        models = [server.models.get(i, server.params) for i in everyone]
        buffers = [server.model_buffers.get(i, server.buffers) for i in everyone]
        if not server.clouds:
            server.clouds = [server.empty_like(model) for model in models]
            server.cloud_buffers = [server.empty_like(row) for row in buffers]
        weights = self.mixing(server, dot_products(models))
        mixtures(models, weights, server.clouds)
        mixtures(buffers, weights, server.cloud_buffers)
        pairs = server.traces_pairs(len(weights), self.context)
        for i, row in enumerate(weights.tolist()):
            server.trace("weight_self", row[i], i)
            for j, weight in enumerate(row):
                if i != j and pairs:
                    server.trace(f"weight/{j}", weight, i)

    def global_model(self, server: Server, initial: Weights) -> None:
        """None: every client has its own mixture."""

    def mixing(self, server: Server, products: Tensor) -> Tensor:
        """xi `[M, M]` of the round after this one, from the products of all models."""
        sigma, self_weight = self.options.sigma, self.options.self_weight
        if self.options.variant == "heur":
            self_weight = 1 / len(products) if self_weight is None else self_weight
            return softmax_of_cosines(products, 25.0 if sigma is None else sigma, self_weight)
        alpha, sigma = self.alpha(server.round + 1), 1e6 if sigma is None else sigma
        weights, clipped = attention(distances_from_products(products), alpha, sigma)
        if clipped:
            server.warn(
                "fedamp: the weights of the others exceeded 1 and were divided by their sum: "
                "lower method.alpha, or raise method.sigma"
            )
        return weights


def distances_from_products(products: Tensor) -> Tensor:
    """|w_i - w_j|^2 `[M, M]` from the products w_i w_j."""
    norms = products.diagonal()
    return (norms[:, None] + norms - 2 * products).clamp_(min=0).fill_diagonal_(0)


def attention(squared: Tensor, alpha: float, sigma: float) -> tuple[Tensor, bool]:
    """xi `[M, M]` of Algorithm 1 from squared distances, and whether a row's own weight would have been negative."""
    # NumPy, because the order of a torch sum depends on the number of threads.
    xi = alpha / sigma * np.exp(-squared.numpy() / sigma)
    np.fill_diagonal(xi, 0)
    others = xi.sum(1, keepdims=True)
    xi /= np.maximum(others, 1)
    np.fill_diagonal(xi, np.maximum(1 - others[:, 0], 0))
    return torch.from_numpy(xi), bool((others > 1).any())


def softmax_of_cosines(products: Tensor, sigma: float, self_weight: float) -> Tensor:
    """xi `[M, M]` of HeurFedAMP: `self_weight` on the diagonal, the rest split by exp(sigma cos(w_i, w_j))."""
    p = products.numpy()
    if len(p) == 1:
        return torch.ones_like(products)
    norms = np.sqrt(p.diagonal().clip(min=0))
    scale = np.outer(norms, norms)
    scores = sigma * np.divide(p, scale, out=np.zeros_like(p), where=scale > 0)
    np.fill_diagonal(scores, -np.inf)
    xi = np.exp(scores - scores.max(1, keepdims=True))
    xi *= (1 - self_weight) / xi.sum(1, keepdims=True)
    np.fill_diagonal(xi, self_weight)
    return torch.from_numpy(xi)
