"""FedPAC: feature alignment and classifier collaboration (Xu, Tong, Huang; ICLR 2023).

Private: the head, which is uploaded and mixed for each client apart. Up: body, head, the trained body's class centroids
with their counts, and two statistics of the received body's features; down: the mean body, the client's own mix of
heads, the global centroids. Ablations send what they use: no centroids with `lam=0`, no statistics without mixing, and
no head with `classifier=local`.

Where we decide:
- Statistics are those of the received model, before training; centroids those of the trained one, after it.
- The alignment is the mean over batch and features, as in the authors' code, which its weight of 1 was tuned with; the
  paper's squared norm is `align_reduction=sum`.
- Heads are mixed by an exact programme. The code drops eigenvalues below 0.01 where rounding made one negative, small
  ones that are real too; PFLlib weights centroids of all clients alike and does not renormalise small weights away.
- The body runs in evaluation mode in the head phase and in training mode in its own; the code, whose networks have
  neither norm layers nor dropout, stays in evaluation mode.
- A client that sits out keeps its head (also with `classifier=average`) and gets the newest body.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import weighted_mean
from fedbench.aggregation.mixes import head_mixes
from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Loss, Move, Step
from fedbench.engine.losses import task_loss_through
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, encoded, zero_bytes
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries, Masks
from fedbench.module.weights import Weights
from fedbench.results.trace import COLLABORATORS, weight_trace


class FedPAC(Method["FedPAC.Options", PrivateState, "FedPAC.Server"]):
    """Features are pulled to global class centroids; heads are mixed among clients with similar features."""

    about = About(
        "features are pulled to global class centroids, heads mixed among the alike",
        "parameter decoupling",
        "Xu et al., ICLR",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedrep:weighting=samples,head_lr=0.1,head_epochs=1,body_epochs=5": {
            "method.lam": 0,
            "method.classifier": "local",
            "model": "mlp",
            "train.weight_decay": 0,
        }
    }
    traces = (weight_trace("head_weight"), COLLABORATORS)
    needs = frozenset({"head", "classes", "epochs"})
    also_sends = "statistics of their features, and their head"

    class Options(Method.Options):
        lam: float = Field(1.0, ge=0, description="weight of the alignment of features, lambda; 0: none")
        head_epochs: int = Field(1, ge=0, description="epochs of the head, before those of the body")
        body_epochs: int = Field(5, ge=0, description="epochs of the body")
        head_lr: float = Field(
            0.1,
            gt=0,
            description="learning rate of the head; train.lr is the body's",
            json_schema_extra={"rate": "run"},
        )
        align_reduction: Literal["mean", "sum"] = Field(
            "mean", description="alignment: mean over the features (authors' code), or the squared norm (paper)"
        )
        classifier: Literal["combined", "local", "average"] = Field(
            "combined", description="head: an own mix of all, the own one, or the mean of all"
        )
        head_weight_eps: float = Field(
            1e-3, ge=0, lt=1, description="weights of a mix up to this count as 0; below 1 / participants"
        )

    @dataclass
    class Server(ServerState):
        """head: the initial head; heads: of every client that has trained; centroids: `[C, d]`."""

        head: Tensor = UNSET
        heads: dict[int, Tensor] = field(default_factory=dict)
        centroids: Tensor | None = None

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return Amount(epochs=options.head_epochs + options.body_epochs).steps_on(samples, train)

    def check(self) -> tuple[str, ...]:
        eps, participants = self.options.head_weight_eps, self.context.participants_per_round
        if eps * participants >= 1:
            raise ConfigError(
                f"method.head_weight_eps = {eps:g}: with {participants} participants a round it must be below "
                f"{1 / participants:g}"
            )
        return ()

    def private(self, layout: Layout) -> Masks:
        head, nothing = layout.masks("head"), layout.nothing()
        masks = {"combined": Masks(head.params, nothing.buffers), "local": head, "average": nothing}
        return masks[self.options.classifier]

    @cached_property
    def head(self) -> Entries:
        return Entries(self.context.layout.mask("head"))

    def receive(self, client: Client) -> Weights:
        received, message = super().receive(client), client.message
        return received.replace(params=self.head.put(received.params, message.head)) if "head" in message else received

    def train(self, client: Client, received: Weights) -> Upload:
        """Trains the head, then the body; before that, uses the received model's features."""
        options, head = self.options, self.context.layout.mask("head")
        statistics, alignment = self.statistics_and_alignment(client, received)
        epochs, resting = Amount(epochs=options.head_epochs), Move(head, frozen="eval")
        tuned = client.fit(received, client.train, "head", epochs, resting, step=Step(lr=options.head_lr))
        epochs = Amount(epochs=options.body_epochs if client.epochs is None else client.epochs)
        trained = client.fit(tuned, client.train, "body", epochs, Move(~head), alignment)
        upload = self.upload(client, trained)
        upload.add(**statistics)
        if options.lam:
            centroids, counts = class_means(*self.features(client, trained), self.context.classes)
            dtype = trained.params.dtype
            upload.add(centroids=centroids.to(dtype), counts=encoded(counts.to(dtype), bits=32))
        if options.classifier == "combined":
            upload.add(head=self.head.take(trained.params))
        return upload

    def statistics_and_alignment(self, client: Client, received: Weights) -> tuple[dict[str, Tensor], Loss | None]:
        """The statistics to send and the body phase's loss, from the received model's features."""
        combined, aligned = self.options.classifier == "combined", "centroids" in client.message
        if not combined and not aligned:
            return {}, None
        features, labels = self.features(client, received)
        sums = head_statistics(features, labels, self.context.classes) if combined else {}
        statistics = {name: part.to(received.params.dtype) for name, part in sums.items()}
        if not aligned:
            return statistics, None
        centroids, (own, _) = client.message.centroids, class_means(features, labels, self.context.classes)
        targets = torch.where(centroids.isnan(), own.to(centroids.dtype), centroids)
        weight = self.options.lam * (targets.shape[1] if self.options.align_reduction == "sum" else 1)
        return statistics, Loss(feature_target_loss, targets=targets, weight=weight, head=self.context.layout.head_name)

    def features(self, client: Client, weights: Weights) -> tuple[Tensor, Tensor]:
        """z `[n, d]` of the training images in evaluation mode, float64, and their labels."""
        features = client.learner.features(weights, client.train)
        return features.flatten(1).to(torch.float64), client.train.labels.to(features.device)

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.head = self.head.take(initial.params)
        return server

    def send(self, server: Server, client: int) -> Message:
        message, head = super().send(server, client), server.heads.get(client, server.head)
        if self.options.classifier == "combined":
            message.add(head=head)
        elif self.options.classifier == "average":  # counted with the model; a client that sat out has its own
            message.add(head=zero_bytes(head))
        if server.centroids is not None:
            message.add(centroids=server.centroids)
        return message

    @uses_aggregator
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        if self.options.lam:
            server.centroids = global_centroids([u.centroids for u in uploads], [u.counts for u in uploads])
        if self.options.classifier == "average":
            server.heads.update(dict.fromkeys([u.client for u in uploads], self.head.take(server.params)))
        elif self.options.classifier == "combined":
            moments = np.stack([u.moments.to(torch.float64).numpy().ravel() for u in uploads])
            mixes = head_mixes(moments, np.array([float(u.spread) for u in uploads]), self.options.head_weight_eps)
            heads = [u.head for u in uploads]
            server.heads.update({u.client: weighted_mean(heads, mix) for u, mix in zip(uploads, mixes, strict=True)})
            pairs = server.traces_pairs(len(uploads), self.context)
            trace(server, [u.client for u in uploads], mixes, pairs)


def trace(server: ServerState, clients: Sequence[int], mixes: np.ndarray, pairs: bool) -> None:
    """Traces the own head's weight in a client's mix, the number of others in it and, with `pairs`, all weights."""
    for i, client in enumerate(clients):
        server.trace("own_weight", mixes[i, i], client)
        server.trace("collaborators", float(np.count_nonzero(np.delete(mixes[i], i))), client)
        if pairs:
            for other, weight in zip(clients, mixes[i], strict=True):
                server.trace(f"head_weight/{other}", weight, client)


def class_means(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean features of each class `[C, d]`, 0 for absent classes, and the class counts `[C]`, float64."""
    member = F.one_hot(labels, classes).to(torch.float64)  # [n, C]
    counts = member.sum(0)
    return member.T @ features / counts.clamp(min=1)[:, None], counts


def head_statistics(features: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """moments: h `[C, d]`, the class means times their shares of the images; spread: V, their variance."""
    means, counts = class_means(features, labels, classes)
    squares, _ = class_means(features.square().sum(1, keepdim=True), labels, classes)  # [C, 1]
    shares = counts[:, None] / len(features)
    moments = shares * means
    spread = ((shares * squares).sum() - moments.square().sum()).clamp(min=0) / len(features)
    return {"moments": moments, "spread": spread}


def global_centroids(centroids: Sequence[Tensor], counts: Sequence[Tensor]) -> Tensor:
    """Means `[C, d]` of local centroids by class counts; NaN if no client has the class."""
    total = torch.zeros_like(centroids[0], dtype=torch.float64)
    images = torch.zeros_like(counts[0], dtype=torch.float64)
    for centroid, count in zip(centroids, counts, strict=True):
        total += count.to(torch.float64)[:, None] * centroid
        images += count
    return (total / images[:, None]).to(centroids[0].dtype)


def feature_target_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus lambda times the mean squared distance of features to their class's target."""
    loss, features, _ = task_loss_through(net, batch, s.head)
    return loss + s.weight * F.mse_loss(features.flatten(1), s.targets[batch[1]])
