"""FedProto: prototypes instead of parameters (Tan, Long, Liu, Zhou, Lu, Jiang, Zhang; AAAI 2022).

Private: the whole model. Up: the mean features of every class that the client has, a bit per class and, with
`weighting=samples`, their counts; down: the global prototypes known so far, and a bit per class. Features are pulled to
the global prototype of their class, and the class of the nearest one is predicted.

Where we decide:
- Prototypes are averaged by their counts. Eq. 6 divides by the number of clients too, which would shrink them; the
  authors' code takes the plain mean (`weighting=uniform`).
- The pull compares every image with its class's prototype, as the code does (mean over the features); eq. 8 compares
  the batch's class means (`align=prototype`).
- Prototypes are those of the trained model in evaluation mode; the code takes features met while it trains.
- The nearest of all known prototypes is predicted (eq. 4); the code looks among the client's own classes only
  (`candidates=own`). A client that knows none predicts by its head. The loss that is reported is the head's.
- A class that nobody uploads in a round keeps its prototype. All clients start from one model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.engine.fit import Batches, Loss
from fedbench.engine.losses import task_loss_through
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.fedpac import class_means
from fedbench.methods.messages import Message, Upload, encoded, sparse
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights


@dataclass(eq=False)
class ModelWithPrototypes(Weights):
    """A trained model, and the prototypes that the client had received for it."""

    prototypes: "Prototypes | None"


@dataclass(frozen=True)
class Prototypes:
    """rows: `[C, d]`; known: bool `[C]`, the classes that have one."""

    rows: Tensor
    known: Tensor


class FedProto(Method["FedProto.Options", PrivateState, "FedProto.Server"]):
    """Clients share the mean features of their classes, and no parameter."""

    about = About("class prototypes are shared instead of parameters", "prototypes", "Tan et al., AAAI", 2022)
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "local": [{"method.lam": 0, "method.predictor": "model"}, {"rounds": 1, "method.predictor": "model"}]
    }

    class Options(Method.Options):
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: no model is sent
        weighting: Literal["samples", "uniform"] = Field(
            "samples", description="weight of a client's prototype: its samples of the class, or the same for all"
        )
        lam: float = Field(1.0, ge=0, description="weight of the pull to the global prototypes, eq. 7")
        align: Literal["mean", "sum", "prototype"] = Field(
            "mean",
            description="pull of an image: mean or sum over the features; or that of a batch's class means, eq. 8",
        )
        predictor: Literal["prototype", "model"] = Field(
            "prototype", description="predicted: the class of the nearest prototype (eq. 4), or that of the head"
        )
        candidates: Literal["all", "own"] = Field("all", description="prototypes compared: all, or the own classes'")

    @dataclass
    class Server(ServerState):
        """prototypes: `[C, d]`; known: bool `[C]`."""

        prototypes: Tensor | None = None
        known: Tensor | None = None

    needs = frozenset({"head", "classes"})
    also_sends = "their prototypes"

    def private(self, layout: Layout) -> Masks:
        return layout.everything()

    def common_shapes(self) -> list[tuple[int, ...]]:
        """The features' shape, which prototypes have."""
        return [self.context.layout.linear_head()[0].shape[1:]]

    def train(self, client: Client, received: Weights) -> Upload:
        prototypes, lam, loss = received_prototypes(client), self.options.lam, None
        if lam and prototypes is not None:
            function = partial(aligned_loss, head=self.context.layout.head_name or "", align=ALIGN[self.options.align])
            loss = Loss(function, prototypes=prototypes.rows, known=prototypes.known, lam=lam)
        trained = client.fit(received, client.train, loss=loss)
        features = client.learner.features(trained, client.train).flatten(1).to(torch.float64)
        means, counts = class_means(features, client.train.labels.to(features.device), self.context.classes)
        present, dtype = counts > 0, trained.params.dtype
        classes = int(present.sum())
        upload = self.upload(client, trained, present=encoded(present, bits=1))
        upload.add(prototypes=sparse(means.to(dtype), classes * means.shape[1]))
        if self.options.weighting == "samples":
            upload.add(counts=sparse(counts.to(dtype), classes))
        upload.trained = ModelWithPrototypes(**vars(trained), prototypes=prototypes)
        return upload

    def personal(self, client: Client, model: Weights, point: Point) -> Weights | Predictor:
        """The nearest prototype: of those received for training (after_fit), or of the newest."""
        prototypes = received_prototypes(client) if point == "after_agg" else getattr(model, "prototypes", None)
        if prototypes is None or self.options.predictor == "model":
            return model
        known = prototypes.known
        if self.options.candidates == "own":
            present = known & (client.train.labels.bincount(minlength=len(known)) > 0).to(known.device)
            known = present if present.any() else known

        def scores(data: Batches) -> Tensor:
            return nearness(client.learner.features(model, data).flatten(1), prototypes.rows, known)

        return Predictor(scores, loss_of=model)

    def send(self, server: Server, client: int) -> Message:
        message = super().send(server, client)
        if server.prototypes is None or server.known is None:
            return message
        size = int(server.known.sum()) * server.prototypes.shape[1]
        return message.add(prototypes=sparse(server.prototypes, size), known=encoded(server.known, bits=1))

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        counts = [u.counts if "counts" in u else u.present.to(u.prototypes) for u in uploads]
        means, known = mean_prototypes([u.prototypes for u in uploads], counts)
        if server.prototypes is not None and server.known is not None:
            means, known = torch.where(known[:, None], means, server.prototypes), known | server.known
        server.prototypes, server.known = means, known


def received_prototypes(client: Client) -> Prototypes | None:
    message = client.message
    return Prototypes(message.prototypes, message.known) if "prototypes" in message else None


def mean_prototypes(prototypes: Sequence[Tensor], counts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Means `[C, d]` of prototypes by counts `[C]` (eq. 6), 0 for classes that nobody has, and who has any, bool."""
    total, images = (
        torch.zeros_like(prototypes[0], dtype=torch.float64),
        torch.zeros(len(counts[0]), dtype=torch.float64),
    )
    for rows, count in zip(prototypes, counts, strict=True):
        total += count.to(torch.float64)[:, None] * rows
        images += count
    return (total / images.clamp(min=1)[:, None]).to(prototypes[0].dtype), images > 0


def nearness(features: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    """Minus the squared distances `[n, C]` of features `[n, d]` to prototypes; the lowest number for unknown ones."""
    far = torch.stack([(features - row).square().sum(1) for row in prototypes], 1)
    return torch.where(known, -far, torch.finfo(far.dtype).min)


def aligned_loss(
    net: LightningModule, batch: Any, s: Any, head: str, align: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """The client's own loss plus lam times the pull of the batch's features (eq. 7)."""
    loss, features, _ = task_loss_through(net, batch, head)
    with torch.autocast(loss.device.type, enabled=False):
        pull = align(features.flatten(1).to(s.prototypes), batch[1], s.prototypes, s.known.to(s.prototypes))
        return loss.to(pull) + s.lam * pull


def pull_by_mean(features: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    """Mean over batch and features of the squared distance to the class's prototype; 0 for classes without."""
    apart = (features - prototypes[labels]) * known[labels][:, None]
    return apart.square().mean()


def pull_by_sum(features: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    return pull_by_mean(features, labels, prototypes, known) * features.shape[1]


def pull_of_means(features: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    """Sum over the batch's classes of the distance of their mean features to their prototype (eq. 8)."""
    member = F.one_hot(labels, len(prototypes)).to(features) * known  # [b, C]
    counts = member.sum(0)[:, None]
    apart = torch.where(counts > 0, member.T @ features / counts.clamp(min=1) - prototypes, 0)
    squares = apart.square().sum(1)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt(), 0).sum()


ALIGN = {"mean": pull_by_mean, "sum": pull_by_sum, "prototype": pull_of_means}
