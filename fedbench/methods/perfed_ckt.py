"""PerFed-CKT (Cho, Wang, Chirvolu, Joshi; preprint 2021, journal version "COMET"): clustered co-distillation.

Private: the whole model; architectures may differ. Up: the client's logits on the public images; down: the mean logits
of the cluster of clients that hers are nearest to, the same size. No parameter travels. Training is local training
plus lam times the squared distance to these logits, summed over classes and averaged over a public batch.

Where we decide (the method as we understand it; the full text was not at hand):
- Clients are clustered by their whole signal. A port of the journal version clusters every image by itself, sends all
  centres, and distils in a phase of its own with a KL divergence.
- k-means starts from the first participant and goes on with the farthest one, so that runs repeat; a cluster's mean is
  uniform and includes the client's own signal; ties go to the lowest number.
- Only the participants of a round are clustered. Who sat out gets the centre nearest to its last signal.
- lam 0.1 and two clusters are ours. Logits grow while training goes on; `signal=probs` does not.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Server, Upload
from fedbench.methods.fedmosaic import Relabelled
from fedbench.methods.local import Local


class PerFedCKT(Local):
    """Local training, drawn to the mean logits of the alike on public images."""

    class Options(Local.Options):
        lam: float = Field(0.1, ge=0, description="weight of the squared distance to the cluster's signal")
        num_clusters: int = Field(2, ge=1, description="clusters of clients, at most the participants of a round")
        signal: Literal["logits", "probs"] = Field("logits", description="what is sent: logits, or their softmax")
        public_batch_size: int | None = Field(
            None, ge=1, description="public images per step; none: the batch size, or all if that is full"
        )
        kmeans_max_iter: int = Field(100, ge=1, description="most assignments of k-means")

    needs_public = True

    def check(self) -> None:
        size = self.options.public_batch_size
        if size and size > self.context.public:
            raise ConfigError(f"method.public_batch_size = {size}: there are {self.context.public} public images")

    # -- the client half ----------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        pull: dict[str, Any] = {}
        if "target" in download and self.options.lam:
            public = Relabelled(client.public, download.target)
            lam = torch.tensor(self.options.lam, dtype=client.learner.dtype, device=client.learner.device)
            pull = {
                "loss": pull_of_probs if self.options.signal == "probs" else pull_of_logits,
                "second": (public, self._public_batch(), "public"),
                "state": {"lam": lam},
            }
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"), **pull)
        return self.upload(client, trained, signal=self.signal(client, trained))

    def signal(self, client: Client, trained: Weights) -> Tensor:
        """What a client says of the public images, `[U, C]`."""
        logits = client.learner.logits(trained, client.public).to(client.learner.dtype)
        return logits.softmax(1) if self.options.signal == "probs" else logits

    def _public_batch(self) -> int:
        size, images = self.context.train.batch_size, self.context.public
        return self.options.public_batch_size or (images if size == "full" else min(size, images))

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.signals, server.centres, server.targets, server.clusters = {}, [], [], {}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        if client in server.signals:
            message.tensors["target"] = server.targets[nearest(server.signals[client], server.centres)]
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        for u in uploads:  # copied, because the uploads' memory is not the server's
            server.signals[u.client] = u.signal.clone()
        clusters, server.centres = k_means(
            [u.signal for u in uploads], self.options.num_clusters, self.options.kmeans_max_iter
        )
        server.targets = [centre.to(uploads[0].signal.dtype) for centre in server.centres]
        server.clusters = {u.client: cluster for u, cluster in zip(uploads, clusters, strict=True)}

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        return {(client, "cluster"): float(cluster) for client, cluster in server.clusters.items()}


def pull_of_logits(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus lam times the distance of its logits; two forward passes, private first."""
    private, (images, target) = batch
    own = task_loss(net, private)
    return own + s.lam * distance(net(images), target)


def pull_of_probs(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The same for the softmax of the logits."""
    private, (images, target) = batch
    own = task_loss(net, private)
    return own + s.lam * distance(net(images).softmax(1), target)


def distance(signal: Tensor, target: Tensor) -> Tensor:
    """Squared distance of two signals `[b, C]`, summed over classes, averaged over images."""
    return (signal - target).square().sum(1).mean()


def k_means(points: Sequence[Tensor], clusters: int, most: int) -> tuple[list[int], list[Tensor]]:
    """The cluster of every point and the centres, float64: Lloyd's algorithm in at most so many assignments.

    It starts from the first point, then each time from the one farthest from the centres so far. The smallest index
    wins ties; a cluster without points keeps its centre.
    """
    centres = farthest_first(points, min(clusters, len(points)))
    assigned: list[int] = []
    for _ in range(most):
        before, assigned = assigned, [nearest(point, centres) for point in points]
        if assigned == before:
            break
        for cluster in set(assigned):
            members = [point for point, own in zip(points, assigned, strict=True) if own == cluster]
            centres[cluster] = sum(members, torch.zeros_like(centres[0])) / len(members)
    return assigned, centres


def farthest_first(points: Sequence[Tensor], count: int) -> list[Tensor]:
    """So many of the points, float64: the first, then each time the one farthest from those before."""
    chosen = [points[0].to(torch.float64)]
    gap = np.full(len(points), np.inf)
    while len(chosen) < count:
        gap = np.minimum(gap, [squared_distance(point, chosen[-1]) for point in points])
        chosen.append(points[int(gap.argmax())].to(torch.float64))
    return [centre.clone() for centre in chosen]


def nearest(point: Tensor, centres: Sequence[Tensor]) -> int:
    """The nearest centre; of equally near ones the first."""
    return int(np.argmin([squared_distance(point, centre) for centre in centres]))


def squared_distance(a: Tensor, b: Tensor) -> float:
    # NumPy, because the order of a torch sum depends on the number of threads.
    return float(np.square(a.numpy().astype(np.float64) - b.numpy()).sum())
