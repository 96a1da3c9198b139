"""PerFedMask, "Personalized Federated Learning with Optimized Masking Vectors" (Setayesh, Li, Wong; ICLR 2023).

FedBABU for devices of different capability: the head stays at its start, equal for all; every client trains the layers
of the body in its mask, chosen before training to bias the mean least. Private: nothing. Up: the layers that a client
trained; down: the body, and once the head. after_agg evaluates a copy of the whole model, fine-tuned by the client and
dropped.

Where we decide:
- The paper relaxes the masks to [0, 1] and needs a commercial solver and random starts; here a deterministic search by
  single flips and exchanges from three starts minimises the same objective under the same budgets.
- The objective weighs clients uniformly, as in the paper; the mean of a layer by images, as in the code (`weighting`).
- A layer is a module with all parameters of its own and the normalisation layer behind it; float buffers go with their
  layer. The search looks at all clients, the mean at the participants that trained the layer.
- The code's protocol (sgd with momentum 0.9, rate 0.1 cut at half and three quarters of the rounds) is no default.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.layer_masks import layer_masks
from fedbench.aggregation.means import elementwise_max, masked_mean
from fedbench.config.words import plural
from fedbench.engine.fit import Amount, Move, Step
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Encoded, Message, Upload, sparse, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights
from fedbench.results.trace import mask_trace

Capability = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Layer:
    """A layer, trained as a whole or not at all. names: of its tensors; size: elements of its parameters."""

    names: tuple[str, ...]
    size: int


class PerFedMask(Method["PerFedMask.Options", PrivateState, "PerFedMask.Server"]):
    """Clients train the layers they can, chosen for a least biased mean, under a fixed head."""

    about = About(
        "a frozen head; every client trains the layers it can, and fine-tunes a copy of the whole",
        "parameter decoupling",
        "Setayesh et al., ICLR",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedbabu": [{"train.weight_decay": 0}, {"method.mask": "sequential", "train.weight_decay": 0}]
    }
    traces = (mask_trace("trained_share", "trained share"),)

    class Options(Method.Options):
        capability: Capability | list[Capability] = Field(
            1.0, description="share of the body that a client can train, nu: one number, or one per client"
        )
        mask: Literal["optimised", "sequential"] = Field(
            "optimised", description="layers by search for the least biased mean, or the first ones that fit"
        )
        ft_epochs: int = Field(5, ge=0, description="epochs of fine-tuning the whole model for evaluation")
        ft_lr: float | None = Field(
            None, gt=0, description="learning rate of fine-tuning; none: the round's", json_schema_extra={"rate": "run"}
        )
        buffers: ClassVar[Any] = "average"  # type: ignore[misc] # no option: they go with their layers

    @dataclass
    class Server(ServerState):
        """head_holders: the clients that have the head already."""

        head_holders: list[int] = field(default_factory=list)

    needs = frozenset({"head"})

    def check(self) -> Iterator[str]:
        if len(self.capabilities) != self.context.clients:
            raise ConfigError(
                f"method.capability: {len(self.capabilities)} numbers for {self.context.clients} clients; give one "
                "number, or one per client"
            )
        if not self.layers:
            raise ConfigError("the model has no parameters outside its head, which perfedmask never trains")
        idle = np.flatnonzero(~self.masks.any(1)).tolist()
        if idle:
            least = min(layer.size for layer in self.layers)
            yield (
                f"perfedmask: {plural(len(idle), 'client')}, e.g. client {idle[0]}, can train no layer and upload "
                f"nothing: the smallest layer has {least} parameters, method.capability must reach "
                f"{least / self.body_size:.3g}"
            )

    def private(self, layout: Layout) -> Masks:
        return layout.masks("head")

    @cached_property
    def capabilities(self) -> list[float]:
        """nu of every client."""
        given = self.options.capability
        return given if isinstance(given, list) else [given] * self.context.clients

    @cached_property
    def layers(self) -> list[Layer]:
        return body_layers(self.context.layout)

    @property
    def body_size(self) -> int:
        """P."""
        return sum(layer.size for layer in self.layers)

    @cached_property
    def masks(self) -> np.ndarray:
        """bool `[clients, layers]`: the layers that each client trains in the run."""
        sizes = np.array([layer.size for layer in self.layers])
        return layer_masks(sizes, np.array(self.capabilities), search=self.options.mask == "optimised")

    def trained_by(self, layers: Tensor) -> Masks:
        """The entries of a client's layers (uint8 `[layers]`)."""
        chosen = [layer.names for layer, mark in zip(self.layers, layers.tolist(), strict=True) if mark]
        return self.context.layout.under(name for names in chosen for name in names)

    def train(self, client: Client, received: Weights) -> Upload:
        layers = client.message.layers
        inside = self.trained_by(layers)
        trained = client.fit(received, client.train, move=Move(inside.params, frozen="norm_eval"))
        size = int(inside.params.sum())
        return Upload(
            client.id,
            client.samples,
            trained,
            traces={"trained_share": size / self.body_size},
            params=sparse(self.shared_params.take(trained.params), size),
            buffers=sparse(self.shared_buffers.take(trained.buffers), int(inside.buffers.sum())),
            counters=zero_bytes(self.shared_counters.take(trained.counters)),
            layers=zero_bytes(layers),
        )

    def personal(self, client: Client, model: Weights, point: Point) -> Weights:
        if point == "after_fit":
            return model
        return self.fine_tuned(client, model, self.options.ft_epochs)

    def fine_tuned(self, client: Client, model: Weights, epochs: int | None) -> Weights:
        return client.fit(model, client.train, "ft", Amount(epochs=epochs), step=Step(lr=self.options.ft_lr))

    def join(self, client: Client, received: Weights) -> Weights:
        """The global model, fine-tuned."""
        return self.fine_tuned(client, received, client.epochs)

    def welcome(self, server: Server, client: int) -> Message:
        """The model; a newcomer needs no mask."""
        return super().send(server, client)

    def send(self, server: Server, client: int) -> Message:
        body, layers = server.params, torch.from_numpy(self.masks[client].astype(np.uint8))
        head = 0 if client in server.head_holders else body.element_size() * self.private_params.size
        message = super().send(server, client)
        return message.add(params=Encoded(body, body.nbytes + head), layers=zero_bytes(layers))

    def global_model(self, server: Server, initial: Weights) -> Weights:
        """The shared body under the fixed head."""
        return self.whole_model(server, initial)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        """The mean of every layer over the participants that trained it."""
        weights, trained = self.weights(uploads), [self.trained_by(u.layers) for u in uploads]
        params = [self.shared_params.take(inside.params) for inside in trained]
        buffers = [self.shared_buffers.take(inside.buffers) for inside in trained]
        server.params = masked_mean([u.params for u in uploads], params, weights, server.params)
        server.buffers = masked_mean([u.buffers for u in uploads], buffers, weights, server.buffers)
        server.counters = elementwise_max([u.counters for u in uploads])
        server.head_holders = sorted({*server.head_holders, *(u.client for u in uploads)})


def body_layers(layout: Layout) -> list[Layer]:
    """The layers of the body, in order. Raises ConfigError if the model's own declaration omits some."""
    params, buffers = ([s for s in slots if not s.head] for slots in (layout.params, layout.buffers))
    for slot in [*params, *buffers]:
        if slot.name not in layout.groups:
            raise ConfigError(f"the model's layer_groups leave out '{slot.name}': name all tensors but the head's")
    layers = []
    for number in sorted({layout.groups[slot.name] for slot in params}):
        own, statistics = ([s for s in slots if layout.groups[s.name] == number] for slots in (params, buffers))
        layers.append(Layer(tuple(s.name for s in [*own, *statistics]), sum(s.size for s in own)))
    return layers
