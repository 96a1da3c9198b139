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
  neither norm layers nor dropout, stays in evaluation mode. Who sits out keeps its mix.

Longer than other method files because it has two phases, two kinds of statistics and a programme for each client.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from fedbench.aggregators import simplex_minimum, weighted_mean
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.loop import task_loss_through
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server, Upload

MOST_PAIRS = 20
"""Participants up to which the weight of every pair is traced."""


class FedPAC(Method):
    """Features are pulled to global class centroids, heads are mixed among clients with like features."""

    class Options(Method.Options):
        lam: float = Field(1.0, ge=0, description="weight of the alignment of features, lambda; 0: none")
        head_epochs: int = Field(1, ge=0, description="epochs of the head, before those of the body")
        body_epochs: int = Field(5, ge=0, description="epochs of the body")
        head_lr: float = Field(0.1, gt=0, description="learning rate of the head; train.lr is the body's")
        align_reduction: Literal["mean", "sum"] = Field(
            "mean", description="alignment: mean over the features (authors' code), or the squared norm (paper)"
        )
        classifier: Literal["combined", "local", "average"] = Field(
            "combined", description="head: an own mix of all, the own one, or the mean of all"
        )
        head_weight_eps: float = Field(
            1e-3, ge=0, lt=1, description="weights of a mix up to this count as 0; below 1 / participants"
        )

    needs_head = True
    own_epochs = True
    wire: Mapping[str, float] = {"counters": 0, "counts": 32}

    def check(self) -> None:
        eps, drawn = self.options.head_weight_eps, self.context.drawn
        if eps * drawn >= 1:
            raise ConfigError(
                f"method.head_weight_eps = {eps:g}: with {drawn} participants a round it must be below {1 / drawn:g}"
            )

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = super().private(layout)
        if self.options.classifier != "average":
            params = layout.mask("head")
        return params, layout.buffer_mask("head") if self.options.classifier == "local" else buffers

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        received = super().receive(client, download)
        return received.replace(params=self.own.put(received.params, download.head)) if "head" in download else received

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        options, head = self.options, self.context.layout.mask("head")
        sent, loss = self._before(client, received, download)
        phase = partial(client.learner.fit, data=client.train)
        tuned = phase(
            received,
            purpose="head",
            epochs=options.head_epochs,
            lr=options.head_lr,
            train_only=head,
            eval_body=True,
            memory=client.memory("head"),
        )
        trained = phase(
            tuned, purpose="body", epochs=options.body_epochs, train_only=~head, memory=client.memory("body"), **loss
        )
        if options.lam:
            sent["centroids"], sent["counts"] = class_means(*self._features(client, trained), self.context.classes)
        if options.classifier == "combined":
            sent["head"] = self.own.take(trained.params)
        extra: dict[str, Any] = {name: part.to(trained.params.dtype) for name, part in sent.items()}
        return self.upload(client, trained, **extra)

    def _before(self, client: Client, received: Weights, download: Message) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What the received model's features are needed for: the statistics to send, the loss of the body phase."""
        combined, aligned = self.options.classifier == "combined", "centroids" in download
        if not combined and not aligned:
            return {}, {}
        features, labels = self._features(client, received)
        sent = head_statistics(features, labels, self.context.classes) if combined else {}
        if not aligned:
            return sent, {}
        own, _ = class_means(features, labels, self.context.classes)
        targets = torch.where(download.centroids.isnan(), own.to(download.centroids.dtype), download.centroids)
        weight = self.options.lam * (targets.shape[1] if self.options.align_reduction == "sum" else 1)
        loss = partial(aligned_loss, head=client.learner.head)
        return sent, {"loss": loss, "state": {"targets": targets, "weight": targets.new_tensor(weight)}}

    def _features(self, client: Client, weights: Weights) -> tuple[Tensor, Tensor]:
        """z `[n, d]` of the training images in evaluation mode, float64, and their labels."""
        features = client.learner.features(weights, client.train)
        return features.flatten(1).to(torch.float64), client.train.labels.to(features.device)

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.head, server.heads = self.own.take(server.initial.params), {}
        server.centroids, server.seen = None, {}

    def prepare(self, server: Server) -> None:
        server.seen = {}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        if self.options.classifier == "combined":
            message.tensors["head"] = server.heads.get(client, server.head)
        if server.centroids is not None:
            message.tensors["centroids"] = server.centroids
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        if self.options.lam:
            server.centroids = global_centroids([u.centroids for u in uploads], [u.counts for u in uploads])
        if self.options.classifier == "combined":
            moments = np.stack([u.moments.to(torch.float64).numpy().ravel() for u in uploads])
            spreads = np.array([float(u.spread) for u in uploads])
            mixes = head_mixes(moments, spreads, self.options.head_weight_eps)
            heads = [u.head for u in uploads]
            server.heads.update({u.client: weighted_mean(heads, mix) for u, mix in zip(uploads, mixes, strict=True)})
            server.seen = observed([u.client for u in uploads], mixes)

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        return server.seen


def aligned_loss(net: LightningModule, batch: Any, s: Any, head: nn.Module) -> Tensor:
    """The client's own loss plus lambda times the mean squared distance of features to their class's target."""
    loss, features, _ = task_loss_through(net, batch, head)
    return loss + s.weight * F.mse_loss(features.flatten(1), s.targets[batch[1]])


def class_means(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean features of each class `[C, d]`, zero rows where there is none, and the class counts `[C]`, float64."""
    member = F.one_hot(labels, classes).to(torch.float64)  # [n, C]
    counts = member.sum(0)
    return member.T @ features / counts.clamp(min=1)[:, None], counts


def head_statistics(features: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """moments: h `[C, d]`, the class means times their shares of the images; spread: V, the variance of that."""
    means, counts = class_means(features, labels, classes)
    squares, _ = class_means(features.square().sum(1, keepdim=True), labels, classes)  # [C, 1]
    shares = counts[:, None] / len(features)
    moments = shares * means
    spread = ((shares * squares).sum() - moments.square().sum()).clamp(min=0) / len(features)
    return {"moments": moments, "spread": spread}


def global_centroids(centroids: Sequence[Tensor], counts: Sequence[Tensor]) -> Tensor:
    """Means `[C, d]` of local centroids by class counts, not a number where no client has the class."""
    total = torch.zeros_like(centroids[0], dtype=torch.float64)
    images = torch.zeros_like(counts[0], dtype=torch.float64)
    for centroid, count in zip(centroids, counts, strict=True):
        total += count.to(torch.float64)[:, None] * centroid
        images += count
    return (total / images[:, None]).to(centroids[0].dtype)


@threadpool_limits.wrap(limits=1, user_api="blas")  # eigenvectors differ with the number of threads
def head_mixes(moments: np.ndarray, spreads: np.ndarray, eps: float) -> np.ndarray:
    """Weights `[n, n]` of all heads in each client's mix: row i minimises a' P_i a on the simplex.

    moments: h of n clients `[n, C d]`; spreads: V `[n]`. P_i holds the inner products of the distances of all h to that
    of client i, and V on its diagonal. Where the programme cannot be solved a client keeps its own head.
    """
    centred = moments - moments.mean(0)  # distances stay, rounding shrinks
    inner = centred @ centred.T
    mixes = np.eye(len(moments))
    for i, row in enumerate(mixes):
        far = inner - inner[i]
        try:
            row[:] = without_small(simplex_minimum(far - far[:, i : i + 1] + np.diag(spreads)), eps)
        except (np.linalg.LinAlgError, RuntimeError, ValueError):
            continue
    return mixes


def without_small(weights: np.ndarray, eps: float) -> np.ndarray:
    """Weights of more than eps, summing to 1 again."""
    kept = np.where(weights > eps, weights, 0.0)
    return kept / kept.sum()


def observed(clients: Sequence[int], mixes: np.ndarray) -> dict[tuple[int, str], float]:
    """How much of its mix is a client's own head, with how many others it mixes, and the weights of few clients."""
    seen = {}
    for i, client in enumerate(clients):
        seen[client, "own_weight"] = float(mixes[i, i])
        seen[client, "collaborators"] = float(np.count_nonzero(np.delete(mixes[i], i)))
        if len(clients) <= MOST_PAIRS:
            seen |= {(client, f"head_weight/{j}"): float(w) for j, w in zip(clients, mixes[i], strict=True)}
    return seen
