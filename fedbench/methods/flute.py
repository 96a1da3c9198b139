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

from collections.abc import Mapping
from functools import partial
from math import sqrt
from typing import Any, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.loop import task_loss, task_loss_through
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server, Upload


class FLUTE(Method):
    """Own heads are kept close to neural collapse on the classes that their clients have."""

    class Options(Method.Options):
        lambda_1: float = Field(0.25, ge=0, description="weight of the head's distance to collapse")
        lambda_2: float = Field(0.0025, ge=0, description="weight of the squared norm of the head")
        lambda_3: float = Field(0.0005, ge=0, description="weight of the squared norm of the features")
        feature_norm: Literal["sum", "mean"] = Field("sum", description="squared norms summed or averaged over a batch")
        rep_epochs: int = Field(1, ge=0, description="last epochs (or steps) in which the body moves too")
        server_lr: float = Field(0.5, ge=0, description="rate of the server's step on the heads; 0: none")
        server_scale: Literal["mean", "sum"] = Field(
            "mean", description="the server descends the mean of the participants' distances, or their sum"
        )

    needs_head = True
    wire: Mapping[str, float] = {"counters": 0, "present": 1}

    def check(self) -> None:
        if self.context.classes < 2:
            raise ConfigError("method.name = flute: neural collapse needs two classes or more")
        self.context.layout.linear_head()

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = super().private(layout)
        return params | layout.mask("head"), buffers

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        received = super().receive(client, download)
        params = received.params.clone()
        params[self._head()] = download.head
        return received.replace(params=params)

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        """First the head alone, then head and body, with one optimiser and one stream of batches."""
        train, memory = self.context.train, client.memory("fit")
        unit, amount = ("steps", train.steps) if train.steps else ("epochs", train.epochs)
        last = min(self.options.rep_epochs, amount)
        phase = partial(client.learner.fit, data=client.train, memory={} if memory is None else memory)
        present = client.train.labels.bincount(minlength=self.context.classes) > 0
        alone: dict[str, Any] = {unit: amount - last, **self._loss(client, present, 0.0)}
        both: dict[str, Any] = {unit: last, **self._loss(client, present, self.options.lambda_3)}
        tuned = phase(received, train_only=self.context.layout.mask("head"), **alone)
        trained = phase(tuned, after=amount - last, **both)
        head = trained.params[self._head()]
        distance = float(collapse_distance(head.view(len(present), -1).to(torch.float64), present))
        upload = self.upload(client, trained, head=head, present=present, traces={"collapse_distance": distance})
        upload.charge = upload.wire_bytes() + 4  # the number of images
        return upload

    def _head(self) -> slice:
        """Where the head's weight is in the vector."""
        weight, _ = self.context.layout.linear_head()
        return slice(weight.start, weight.stop)

    def _loss(self, client: Client, present: Tensor, lambda_3: float) -> dict[str, Any]:
        """The loss of a phase; without any weight it is the module's own."""
        lambdas = (self.options.lambda_1, self.options.lambda_2, lambda_3)
        if not any(lambdas):
            return {}
        weight, _ = self.context.layout.linear_head()
        number = partial(torch.tensor, dtype=client.learner.dtype, device=client.learner.device)
        loss = partial(
            regularised_loss,
            weight=weight.name,
            head=client.learner.head if lambda_3 else None,
            mean=self.options.feature_norm == "mean",
        )
        return {"loss": loss, "state": {"lambdas": number(lambdas), "present": present}}

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.head, server.heads, server.seen = server.initial.params[self._head()], {}, {}

    def prepare(self, server: Server) -> None:
        server.seen = {}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        message.tensors["head"] = server.heads.get(client, server.head)
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        rate = self.options.server_lr / (len(uploads) if self.options.server_scale == "mean" else 1)
        for u in uploads:
            head = collapse_step(u.head.view(len(u.present), -1).to(torch.float64), u.present, rate)
            server.heads[u.client] = head.flatten().to(u.head.dtype)
            server.seen[u.client, "collapse_distance_stepped"] = float(collapse_distance(head, u.present))

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        return server.seen


def regularised_loss(
    net: LightningModule, batch: Any, s: Any, weight: str, head: nn.Module | None, mean: bool
) -> Tensor:
    """The client's own loss, the head's distance to collapse and squared norm, and the features' if `head` is given."""
    loss, features, _ = task_loss_through(net, batch, head) if head else (task_loss(net, batch), None, None)
    with torch.autocast(loss.device.type, enabled=False):
        w = net.get_parameter(weight)
        loss = loss + s.lambdas[0] * collapse_distance(w, s.present) + s.lambdas[1] * w.square().sum()
        return loss if features is None else loss + s.lambdas[2] * feature_penalty(features.to(w), mean)


def feature_penalty(features: Tensor, mean: bool) -> Tensor:
    """Squared norms of a batch of features, summed or averaged over the batch."""
    total = features.square().sum()
    return total / len(features) if mean else total


def collapse_distance(weight: Tensor, present: Tensor) -> Tensor:
    """D: how far the normalised W W' of a head `[m, H]` is from a simplex frame of the classes present, bool `[m]`.

    0, with a gradient of 0, where W W' is 0 or D is no more than rounding.
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
