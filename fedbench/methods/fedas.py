"""FedAS: parameter alignment and client synchronisation (Yang, Huang, Ye; CVPR 2024).

Private: the head, and the client's last trained model. Up: the body with its running statistics, and one number, the
trace of the Fisher information, by which bodies are weighted; down: the mean body. A client fits the received body to
the class means of its own last model's features before it trains body and head together.

Where we decide:
- Every client aligns the same received body, a copy; the authors' code aligns the server's own model, client by client,
  so that its result depends on their order.
- The trace sums squared gradients of batches, as in the code, which its published numbers stand on; `fisher=sample` is
  the definition.
- Alignment compares every image with its class's mean, as in the code; a library compares class means of the batch
  (`align=means`). It makes plain steps in evaluation mode and moves no statistics.
- A client that has not trained yet aligns to the start model's features, as in the code; `first=skip`: not at all.
- Evaluated is the aligned new body with the own head: what the client would train from. The code tests before it sends,
  so its published values are our after_fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import normalise
from fedbench.engine.losses import calls_of
from fedbench.methods.base import About, Method, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.fedpac import class_means
from fedbench.methods.messages import Upload, encoded, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights


class FedAS(Method["FedAS.Options", "FedAS.State"]):
    """The received body is fitted to the client's own features; bodies are weighted by Fisher information."""

    about = About(
        "received bodies are aligned to own features, and weighted by Fisher information",
        "parameter decoupling",
        "Yang et al., CVPR",
        2024,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedper": {"method.align_epochs": 0, "method.weighting": "samples"}}

    class Options(Method.Options):
        weighting: Literal["fisher", "samples", "uniform"] = Field(  # type: ignore[assignment]
            "fisher",
            description="weight of a client in the mean: trace of Fisher information, samples, or the same",
        )
        align_epochs: int = Field(1, ge=0, description="epochs of the alignment; 0: none")
        align_lr: float = Field(
            0.01, gt=0, description="learning rate of the alignment", json_schema_extra={"rate": "own"}
        )
        align_batch_size: Annotated[int, Field(ge=1)] | Literal["full"] = Field(
            16, description="batch size of the alignment, 1 or more, or full"
        )
        align: Literal["samples", "means"] = Field(
            "samples", description="compared with a class's mean features: every image, or the batch's mean"
        )
        first: Literal["initial", "skip"] = Field(
            "initial", description="before a client has trained: aligned to the start model's features, or not"
        )
        fisher: Literal["batch", "sample"] = Field("batch", description="squared gradients of batches, or of samples")

    @dataclass
    class State(PrivateState):
        """last: the last trained model."""

        last: Weights | None = None

    needs = frozenset({"head", "classes"})
    also_sends = "the trace of their Fisher information"

    def private(self, layout: Layout) -> Masks:
        return layout.masks("head")

    def receive(self, client: Client[State]) -> Weights:
        received, last = super().receive(client), client.state.last
        if not self.options.align_epochs or (last is None and self.options.first == "skip"):
            return received
        return self.realigned_body(client, received, last or client.initial)

    def realigned_body(self, client: Client[State], received: Weights, last: Weights) -> Weights:
        """The received body after alignment to the class means of the last model's features."""
        options, train, body = self.options, self.context.train, self.shared_params.mask
        features = client.learner.features(last, client.train).flatten(1).to(torch.float64)
        labels = client.train.labels.to(features.device)
        prototypes, _ = class_means(features, labels, self.context.classes)
        loss = partial(
            alignment_loss,
            head=self.context.layout.head_name or "",
            prototypes=prototypes.to(received.params),
            distance=class_distances if options.align == "samples" else mean_distances,
        )
        rate = options.align_lr * train.decay(client.round + 1)  # of the round to come
        size = client.samples if options.align_batch_size == "full" else options.align_batch_size
        for places in shuffled_batches(client, "align", size, options.align_epochs):
            _, gradient = client.learner.gradient(received, client.train.batch(places), loss, body)
            received = received.replace(params=received.params - rate * gradient)
        return received

    def train(self, client: Client[State], received: Weights) -> Upload:
        trained = client.fit(received, client.train)
        client.state.last = trained
        upload = self.upload(client, trained)
        if self.options.weighting == "fisher":
            trace = self.fisher_trace(client, trained)
            upload.add(fisher=encoded(zero_bytes(trace).tensor, bits=32))
            upload.traces["fisher"] = trace
        return upload

    def fisher_trace(self, client: Client[State], model: Weights) -> float:
        """The trace of the empirical Fisher information of all parameters, in evaluation mode."""
        learner, data = client.learner, client.train
        if self.options.fisher == "sample":
            return float(learner.squared_gradients(model, data).sum())
        size = self.context.train.batch_size
        batches = shuffled_batches(client, "fisher", client.samples if size == "full" else int(size), 1)
        slopes = (learner.gradient(model, data.batch(places))[1].to(torch.float64) for places in batches)
        return sum(float(slope.square().sum()) for slope in slopes)

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        if self.options.weighting != "fisher":
            return super().weights(uploads)
        traces = [float(u.fisher) for u in uploads]
        return normalise(traces if any(traces) else [1.0] * len(traces))

    @uses_aggregator
    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)


def shuffled_batches(client: Client, stream: str, size: int, epochs: int) -> Iterator[Tensor]:
    """Places of the batches of some epochs; small ones are kept."""
    draw, device = client.generator(stream), client.initial.params.device
    for _ in range(epochs):
        yield from torch.randperm(client.samples, generator=draw).to(device).split(size)


def alignment_loss(net: LightningModule, batch: Any, s: Any, head: str, prototypes: Tensor, distance: Any) -> Tensor:
    with calls_of(net.get_submodule(head)) as calls:
        net(batch[0])
    loss: Tensor = distance(calls[0][0].flatten(1).to(prototypes), batch[1], prototypes)
    return loss


def class_distances(features: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """Sum over the batch's classes of the mean squared distance of their features `[b, d]` to the prototype."""
    counts = labels.bincount(minlength=len(prototypes))[labels]
    return ((features - prototypes[labels]).square().mean(1) / counts).sum()


def mean_distances(features: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """The same with the mean features of a class in the batch instead of every image's."""
    member = F.one_hot(labels, len(prototypes)).to(features)
    counts = member.sum(0)[:, None]
    apart = torch.where(counts > 0, member.T @ features / counts.clamp(min=1) - prototypes, 0)
    return apart.square().mean(1).sum()
