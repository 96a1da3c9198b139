"""FLUTE: federated representation learning in the under-parameterized regime (Liu, Shen, Yang; ICML 2024).

The version for general networks and classification (FLUTE*); the linear one with low-rank factors is out of scope.
Private: the bias of the head. Up: body, the client's own head weight, a bit per class it has, its number of images;
down: the mean body and the own head weight, which the server has moved towards neural collapse; never a mean of heads.

Where we decide:
- In the published code the epochs of the head alone do nothing, because the step stands in the branch of the last
  epochs. Here they train the head, as in FL-bench and as the regularisers are written for.
- after_agg is the model after the server's step; the authors test before it. Their last round of the head is left out.
- The feature penalty is a sum over the batch, so its weight grows with the batch size; `feature_norm=mean` is offered.
- Where a head is zero or fully collapsed the distance has no gradient; its gradient counts as zero.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from operator import attrgetter
from typing import Any, ClassVar, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.engine.fit import Amount, Loss, Move, Step
from fedbench.engine.losses import task_loss, task_loss_through
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, encoded
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries, Masks
from fedbench.module.weights import Weights


class FLUTE(Method["FLUTE.Options", PrivateState, "FLUTE.Server"]):
    """Own heads are kept close to neural collapse on the classes of their clients."""

    about = About(
        "own heads are kept close to neural collapse, by the clients and by the server",
        "parameter decoupling",
        "Liu et al., ICML",
        2024,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedper": {"method.lambda_1": 0, "method.lambda_2": 0, "method.lambda_3": 0, "method.server_lr": 0},
    }
    needs = frozenset({"head", "classes"})
    also_sends = "their head and the classes they have"

    class Options(Method.Options):
        lambda_1: float = Field(0.25, ge=0, description="weight of the head's distance to collapse")
        lambda_2: float = Field(0.0025, ge=0, description="weight of the squared norm of the head")
        lambda_3: float = Field(0.0005, ge=0, description="weight of the squared norm of the features")
        feature_norm: Literal["sum", "mean"] = Field("sum", description="squared norms summed or averaged over a batch")
        rep_epochs: int = Field(1, ge=0, description="last epochs (or steps) in which the body moves too")
        server_lr: float = Field(
            0.5, ge=0, description="rate of the server's step on the heads; 0: none", json_schema_extra={"rate": "own"}
        )
        server_scale: Literal["mean", "sum"] = Field(
            "mean", description="the server descends the mean of the participants' distances, or their sum"
        )

    @dataclass
    class Server(ServerState):
        """head: the initial weight of every head; heads: of every client that has trained."""

        head: Tensor = UNSET
        heads: dict[int, Tensor] = field(default_factory=dict)

    def check(self) -> tuple[str, ...]:
        if self.context.classes < 2:
            raise ConfigError("method.name = flute: neural collapse needs two classes or more")
        self.context.layout.linear_head()
        return ()

    def private(self, layout: Layout) -> Masks:
        return Masks(layout.mask("head"), layout.nothing().buffers)

    @cached_property
    def head(self) -> Entries:
        """The weight of the head, which is sent although it is private."""
        weight, _ = self.context.layout.linear_head()
        return Entries(self.context.layout.under([weight.name]).params)

    def receive(self, client: Client) -> Weights:
        received = super().receive(client)
        return received.replace(params=self.head.put(received.params, client.message.head))

    def train(self, client: Client, received: Weights) -> Upload:
        """Trains the head, then head and body, with one optimiser and one stream of batches."""
        present = client.train.labels.bincount(minlength=self.context.classes) > 0
        kept, (alone, both) = client.memory("fit"), self.amounts(client.epochs)
        step, move = Step(memory={} if kept is None else kept), Move(self.context.layout.mask("head"))
        tuned = client.fit(received, client.train, amount=alone, move=move, loss=self.loss(present, 0.0), step=step)
        loss = self.loss(present, self.options.lambda_3)
        trained = client.fit(tuned, client.train, amount=both, loss=loss, step=step)
        head = self.head.take(trained.params)
        return self.upload(
            client,
            trained,
            head=head,
            present=encoded(present, bits=1),
            images=encoded(torch.tensor(client.samples), bits=32),
            traces={"collapse_distance": float(collapse_distance(as_rows(head, present), present))},
        )

    def amounts(self, epochs: int | None) -> tuple[Amount, Amount]:
        """Amounts of the head phase and of the phase after it. epochs: of both, if not those of the run."""
        train = self.context.train
        total = (train.steps or train.epochs) if epochs is None else epochs
        last = min(self.options.rep_epochs, total)
        if train.steps and epochs is None:
            return Amount(steps=total - last), Amount(steps=last, after=total - last)
        return Amount(epochs=total - last), Amount(epochs=last, after=total - last)

    def loss(self, present: Tensor, lambda_3: float) -> Loss | None:
        """The loss of a phase; without weights the module's own."""
        options, (weight, _) = self.options, self.context.layout.linear_head()
        lambdas = {"lambda_1": options.lambda_1, "lambda_2": options.lambda_2, "lambda_3": lambda_3}
        if not any(lambdas.values()):
            return None
        head = self.context.layout.head_name if lambda_3 else None  # its inputs are features
        norm = options.feature_norm
        return Loss(regularised_loss, weight=weight.name, present=present, head=head, feature_norm=norm, **lambdas)

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.head = self.head.take(initial.params)
        return server

    def send(self, server: Server, client: int) -> Message:
        return super().send(server, client).add(head=server.heads.get(client, server.head))

    @uses_aggregator
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        rate = self.options.server_lr / (len(uploads) if self.options.server_scale == "mean" else 1)
        for u in uploads:
            head = collapse_step(as_rows(u.head, u.present), u.present, rate)
            server.heads[u.client] = head.flatten().to(u.head.dtype)
            server.trace("collapse_distance_stepped", float(collapse_distance(head, u.present)), u.client)


def collapse_distance(weight: Tensor, present: Tensor) -> Tensor:
    """D: how far the normalised W W' of a head `[m, H]` is from a simplex frame of the classes present, bool `[m]`.

    0, with a gradient of 0, if W W' is 0 or D is only rounding.
    """
    classes, some = len(weight), present.to(weight.dtype)
    gram = weight @ weight.T  # [m, m]
    size = gram.norm()
    frame = torch.eye(classes, dtype=weight.dtype, device=weight.device) - 1 / classes
    target = frame * torch.outer(some, some) / sqrt(classes - 1)
    distance = (gram / torch.where(size > 0, size, 1) - target).norm()
    defined = (size > 0) & (distance > 8 * torch.finfo(weight.dtype).eps)
    return torch.where(defined, distance, torch.zeros_like(distance))


def collapse_step(weight: Tensor, present: Tensor, rate: float) -> Tensor:
    """One gradient step of a head `[m, H]` towards collapse."""
    with torch.enable_grad():
        weight = weight.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(collapse_distance(weight, present), weight)
    return weight.detach() - rate * gradient


def as_rows(head: Tensor, present: Tensor) -> Tensor:
    """The weight of a head as a matrix `[m, H]`, float64."""
    return head.view(len(present), -1).to(torch.float64)


def regularised_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss, the head's distance to collapse, and the squared norms of head and features.

    s.weight: name of the head's weight; s.head: the head's name, or none for a loss without features.
    """
    loss, features, _ = (task_loss(net, batch), None, None) if s.head is None else task_loss_through(net, batch, s.head)
    with torch.autocast(loss.device.type, enabled=False):
        w = attrgetter(s.weight)(net)
        loss = loss + s.lambda_1 * collapse_distance(w, s.present) + s.lambda_2 * w.square().sum()
        return loss if features is None else loss + s.lambda_3 * feature_penalty(features.to(w), s.feature_norm)


def feature_penalty(features: Tensor, norm: str) -> Tensor:
    """Squared norms of a batch of features, their sum or mean over the batch."""
    total = features.square().sum()
    return total / len(features) if norm == "mean" else total
