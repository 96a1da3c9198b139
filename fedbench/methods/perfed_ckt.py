"""PerFed-CKT (Cho, Wang, Chiruvolu, Joshi; preprint 2021, journal version "COMET"): clustered co-distillation.

Private: the whole model; architectures may differ. Up: the client's logits on the public images; down: the mean logits
of the nearest cluster of clients, of the same size. No parameter is sent. Training is local training plus lam times
the squared distance to these logits, summed over classes and averaged over a public batch.

Where we decide:
- This is the method as we understand it; the full text was not at hand.
- Clients are clustered by their whole signal. A port of the journal version clusters every image by itself, sends all
  centres, and distils in a separate phase with a KL divergence.
- k-means starts from the first participant and adds the farthest one, so runs are reproducible; a cluster's mean is
  uniform and includes the client's own signal; ties go to the lowest number.
- Only the participants of a round are clustered. Other clients get the centre nearest to their last signal.
- The first exchange is at the end of round `first_vote`: 1, or by default the one by which clients have made 80
  gradient steps each, on average, because the outputs of models that have learnt nothing pull to nothing.
- lam 0.1 and two clusters are ours. Logits grow while training goes on; `signal=probs` does not.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.clusters import k_means, nearest_centre
from fedbench.engine.fit import Batches, Loss, PairedBatches
from fedbench.engine.losses import task_loss
from fedbench.methods.base import About
from fedbench.methods.client import Client
from fedbench.methods.cotraining import PublicExchange, PublicLabels, public_batch
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights
from fedbench.results.trace import CLUSTER


class PerFedCKT(PublicExchange["PerFedCKT.Options", "PerFedCKT.Server"]):
    """Local training, pulled to the mean logits of similar clients on public images."""

    about = About(
        "clusters of clients share their logits on public samples", "distillation", "Cho et al., preprint", 2021
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"method.lam": 0}}
    traces = (CLUSTER,)
    needs = frozenset({"public", "classes"})
    also_sends = "their outputs on the public samples"

    class Options(PublicExchange.Options):
        lam: float = Field(0.1, ge=0, description="weight of the squared distance to the cluster's signal")
        num_clusters: int = Field(2, ge=1, description="clusters of clients, at most the participants of a round")
        signal: Literal["logits", "probs"] = Field("logits", description="what is sent: logits, or their softmax")
        kmeans_max_iter: int = Field(100, ge=1, description="most assignments of k-means")

    @dataclass
    class Server(ServerState):
        """signals: the last one of every client; centres: of the clusters, float64; targets: those as sent."""

        signals: dict[int, Tensor] = field(default_factory=dict)
        centres: list[Tensor] = field(default_factory=list)
        targets: list[Tensor] = field(default_factory=list)

    def train(self, client: Client, received: Weights) -> Upload:
        options, loss = self.options, None
        data: Batches = client.train
        if "target" in client.message and options.lam:
            public = PublicLabels(client.public, client.message.target)
            data = PairedBatches(client.train, public, public_batch(options.public_batch_size, self.context))
            loss = Loss(pull_of_probs if options.signal == "probs" else pull_of_logits, lam=options.lam)
        trained = client.fit(received, data, loss=loss)
        upload = self.upload(client, trained)
        if self.exchanges(client.round):
            upload.add(signal=self.signal(client, trained))
        return upload

    def signal(self, client: Client, trained: Weights) -> Tensor:
        """A client's signal on the public images, `[U, C]`."""
        logits = client.learner.logits(trained, client.public).to(client.learner.dtype)
        return logits.softmax(1) if self.options.signal == "probs" else logits

    def send(self, server: Server, client: int) -> Message:
        message = super().send(server, client)
        if client in server.signals:
            message.add(target=server.targets[nearest_centre(server.signals[client], server.centres)])
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        if not self.exchanges(server.round):
            return
        server.signals.update({u.client: u.signal for u in uploads})
        clusters, server.centres = k_means(
            [u.signal for u in uploads], self.options.num_clusters, self.options.kmeans_max_iter
        )
        server.targets = [centre.to(uploads[0].signal.dtype) for centre in server.centres]
        for u, cluster in zip(uploads, clusters, strict=True):
            server.trace("cluster", cluster, u.client)


def pull_of_logits(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus lam times the distance of its logits; two forward passes, private first."""
    private, (images, target) = batch
    loss = task_loss(net, private)
    return loss + s.lam * signal_distance(net(images), target)


def pull_of_probs(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The same for the softmax of the logits."""
    private, (images, target) = batch
    loss = task_loss(net, private)
    return loss + s.lam * signal_distance(net(images).softmax(1), target)


def signal_distance(signal: Tensor, target: Tensor) -> Tensor:
    """Squared distance of two signals `[b, C]`, summed over classes, averaged over images."""
    return (signal - target).square().sum(1).mean()
