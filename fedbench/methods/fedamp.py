"""FedAMP and HeurFedAMP (Huang, Chu, Zhou, Wang, Liu, Pei, Zhang; AAAI 2021): who is alike pulls the other closer.

Private: the data, the step counters of BatchNorm and, with `bn_stats=local`, its running statistics. Up: the client's
model; down: a mixture of all clients' models for this client alone, to which its training is pulled.

Where we decide:
- The weight of j for i is alpha A'(|w_i - w_j|^2) with A(x) = 1 - exp(-x / sigma), as in the paper's update; the pair
  term differentiated exactly has a 2, which is inside alpha. Norms are squared, in the pull too.
- Where the others would weigh more than 1 they are divided by their sum and the client's own weight is 0. Popular code
  goes on with a negative weight and diverges.
- The paper defines a model as a minimiser and leaves open where training starts: from the mixture (`start=cloud`), or
  from the client's own model, which then is what the client holds, and the mixture's statistics go unused and unsent.
- alpha falls, but never below lr x lam, from where on a step of the pull would overshoot the mixture.
- The server mixes the last upload of every client, w^0 before the first, for all clients, whoever takes part.
- Popular code pulls with an unsquared norm, and its alpha = sigma = 1 makes all weights vanish for a large net.
"""

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import dot_products, mixtures
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server, Upload
from fedbench.methods.fedprox import proximal_pull

MOST_PAIRS = 20
"""Clients up to which the weight of every pair is traced."""


class FedAMP(Method):
    """Every client gets a mixture of all models of its own, in which similar models weigh more."""

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
        weighting: Literal["uniform"] = Field("uniform", description="images never count: similarity alone decides")

    def check(self) -> None:
        options = self.options
        if options.buffers != "average":
            raise ConfigError("method.buffers = 'private': fedamp names it method.bn_stats = local")
        if options.variant == "fedamp" and options.self_weight is not None:
            raise ConfigError(
                f"method.self_weight = {options.self_weight:g}: only method.variant = heur sets it; leave it out"
            )
        if options.variant == "fedamp" and options.sigma == 0:
            raise ConfigError("method.sigma = 0: must be a number > 0 with method.variant = fedamp")

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = super().private(layout)
        return params, buffers.fill_(self.options.bn_stats == "local" or self.options.start == "local")

    def private_counters(self, layout: Layout, buffers: Tensor) -> Tensor:
        return torch.ones(layout.counter_size, dtype=torch.bool)

    def alpha(self, round: int) -> float:
        """alpha_t, never below lr x lam."""
        falls = (round - 1) // self.options.decay_interval
        least = self.context.train.lr * self.options.lam
        return max(self.options.alpha * self.options.alpha_decay**falls, least)

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        received = super().receive(client, download)
        if self.options.start == "local":
            return received.replace(params=client.state.get("trained", client.initial.params))
        return received

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        pull: dict[str, Any] = {}
        if self.options.lam:
            strength = torch.tensor(self.options.lam / self.alpha(client.round), dtype=received.params.dtype)
            pull = {"gradient": proximal_pull, "state": {"anchor": download.params, "mu": strength}}
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"), **pull)
        if self.options.start == "local":
            client.state["trained"] = trained.params
        return self.upload(client, trained)

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.models, server.model_buffers = {}, {}
        server.clouds, server.cloud_buffers = [], []
        server.weights, server.clipped = None, False

    def download(self, server: Server, client: int) -> Message:
        """The client's mixture: a row that the next aggregation writes over."""
        if not server.clouds:
            return super().download(server, client)
        return self.message(
            params=server.clouds[client], buffers=server.cloud_buffers[client], counters=server.counters
        )

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        for u in uploads:  # copied, because the uploads' memory is not the server's
            server.models.setdefault(u.client, torch.empty_like(u.params)).copy_(u.params)
            server.model_buffers[u.client] = u.buffers.clone()
        everyone = range(self.context.clients)
        models = [server.models.get(i, server.params) for i in everyone]
        buffers = [server.model_buffers.get(i, server.buffers) for i in everyone]
        if not server.clouds:
            server.clouds = [torch.empty_like(model) for model in models]
            server.cloud_buffers = [torch.empty_like(row) for row in buffers]
        server.weights = self.mixing(dot_products(models), server)
        mixtures(models, server.weights, server.clouds)
        mixtures(buffers, server.weights, server.cloud_buffers)

    def mixing(self, products: Tensor, server: Server) -> Tensor:
        """xi `[M, M]` of the round after this one, from the products of all models."""
        sigma, own = self.options.sigma, self.options.self_weight
        if self.options.variant == "heur":
            own = 1 / len(products) if own is None else own
            return softmax_of_cosines(products, 25.0 if sigma is None else sigma, own)
        weights, clipped = attention(
            squared_distances(products), self.alpha(server.round + 1), 1e6 if sigma is None else sigma
        )
        server.clipped |= clipped
        return weights

    def remarks(self, server: Server) -> list[str]:
        if not server.clipped:
            return []
        return [
            "fedamp: the weights of the others exceeded 1 and were divided by their sum: "
            "lower method.alpha, or raise method.sigma"
        ]

    def global_weights(self, server: Server) -> None:
        """Every client has its own mixture."""
        return None

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        if server.weights is None:
            return {}
        xi = server.weights.tolist()
        seen = {(i, "weight_self"): row[i] for i, row in enumerate(xi)}
        if len(xi) <= MOST_PAIRS:
            seen |= {(i, f"weight/{j}"): x for i, row in enumerate(xi) for j, x in enumerate(row) if i != j}
        return seen


def squared_distances(products: Tensor) -> Tensor:
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


def softmax_of_cosines(products: Tensor, sigma: float, own: float) -> Tensor:
    """xi `[M, M]` of HeurFedAMP: `own` for oneself, the rest by exp(sigma cos(w_i, w_j)) among the others."""
    p = products.numpy()
    if len(p) == 1:
        return torch.ones_like(products)
    norms = np.sqrt(p.diagonal())
    scale = np.outer(norms, norms)
    scores = sigma * np.divide(p, scale, out=np.zeros_like(p), where=scale > 0)
    np.fill_diagonal(scores, -np.inf)
    xi = np.exp(scores - scores.max(1, keepdims=True))
    xi *= (1 - own) / xi.sum(1, keepdims=True)
    np.fill_diagonal(xi, own)
    return torch.from_numpy(xi)
