"""Co-training by hard labels: what the methods share whose clients vote on the labels of public images.

Private: everything; no parameter ever travels. Up: a class index per public image, and what a method adds; down: a
class index per public image. Only clients of the round vote, ties go to the lowest class, and labels stay until there
are newer ones. A client that is known to hold the newest labels is not sent them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import plurality, vote
from fedbench.errors import ConfigError
from fedbench.learner.learner import Batches
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Context, Message, Server, Upload
from fedbench.methods.local import Local
from fedbench.methods.privacy import flip_probability, flipped, randomised_response


class CoTraining(Local):
    """Local training and a vote. A method says how the voted labels take part in training."""

    class Options(Local.Options):
        public_batch_size: int | None = Field(
            None, ge=1, description="public images per step; none: the batch size, or all if that is full"
        )
        communication_period: int = Field(1, ge=1, description="rounds between two votes")
        label_privacy: Literal["none", "krr", "xor"] = Field(
            "none", description="noise on uploaded labels: randomised response, or flipped bits of one-hot rows"
        )
        label_epsilon: float | None = Field(
            None, gt=0, description="budget: of one label (krr), or of all labels of an upload (xor)"
        )
        label_sensitivity: int | None = Field(
            None, ge=1, description="labels (krr) or bits (xor) that one training image can change; none: all"
        )

    needs_public = True

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self.wire = {"counters": 0, "labels": (context.classes - 1).bit_length(), "rows": 1}

    def check(self) -> None:
        options, public = self.options, self.context.public
        if (options.label_privacy == "none") != (options.label_epsilon is None):
            raise ConfigError(
                f"method.label_privacy = '{options.label_privacy}', method.label_epsilon = {options.label_epsilon}: "
                "krr and xor need a budget above 0, and none takes no budget"
            )
        if options.label_privacy == "none" and options.label_sensitivity is not None:
            raise ConfigError("method.label_sensitivity: there is no noise on labels, set method.label_privacy")
        if options.public_batch_size and options.public_batch_size > public:
            raise ConfigError(
                f"method.public_batch_size = {options.public_batch_size}: there are {public} public images"
            )

    def warnings(self) -> list[str]:
        labels, uploads = self.label_budget(), self.uploads()
        if not labels:
            return []
        name = type(self).__name__.lower()
        return [f"{name}: one upload spends epsilon {labels:.6g}, all {uploads} of them {uploads * labels:.6g}"]

    # -- the client half ----------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        labels = download.labels if "labels" in download else None
        trained, traces = self.train(client, received, labels)
        votes = {} if client.round % self.options.communication_period else self.votes(client, trained)
        return self.upload(client, trained, traces=traces, **votes)

    def train(self, client: Client, received: Weights, labels: Tensor | None) -> tuple[Weights, dict[str, float]]:
        """The trained model and the round's traces; labels `[U]`: the newest of the public images, if any."""
        return client.learner.fit(received, client.train, memory=client.memory("fit")), {}

    def public_batch(self) -> int:
        """Public images per step."""
        size, images = self.context.train.batch_size, self.context.public
        return self.options.public_batch_size or (images if size == "full" else min(size, images))

    def votes(self, client: Client, trained: Weights) -> dict[str, Tensor]:
        """What is uploaded: `labels` [U], or noisy one-hot `rows` [U, C]."""
        labels = client.learner.logits(trained, client.public).cpu().argmax(1)
        return self.noisy_labels(labels, client.generator("privacy"))

    def noisy_labels(self, labels: Tensor, stream: torch.Generator) -> dict[str, Tensor]:
        """The labels as they are sent."""
        options, classes = self.options, self.context.classes
        if options.label_privacy == "krr":
            labels = randomised_response(labels, classes, options.label_epsilon, stream)
        if options.label_privacy != "xor":
            return {"labels": labels}
        probability = flip_probability(options.label_epsilon / self.sensitivity())
        return {"rows": flipped(F.one_hot(labels, classes).bool(), probability, stream)}

    # -- what noise spends --------------------------------------------------------------------------------------------

    def sensitivity(self) -> int:
        """Labels (krr) or bits (xor) of an upload that one training image can change."""
        worst = {"krr": self.context.public, "xor": 2 * self.context.public, "none": 0}
        return self.options.label_sensitivity or worst[self.options.label_privacy]

    def label_budget(self) -> float:
        """Epsilon that one upload spends on labels; 0 without noise, where nothing is promised."""
        each = self.options.label_epsilon or 0.0
        return each * self.sensitivity() if self.options.label_privacy == "krr" else each

    def spent(self, uploads: int) -> dict[str, float]:
        """Budget that a client has spent with so many uploads, to be traced; nothing where there is no noise."""
        return {"epsilon": uploads * self.label_budget()} if self.label_budget() else {}

    def uploads(self) -> int:
        """Uploads of a client that takes part in every round of the run."""
        return self.context.rounds // self.options.communication_period

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.labels, server.voted, server.holds, server.seen, server.uploads = None, 0, {}, {}, {}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        if server.labels is not None:
            message.tensors["labels"] = server.labels
            held = server.holds.get(client) == server.voted
            message.bits = {**self.wire, "labels": 0 if held else (self.context.classes - 1).bit_length()}
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        server.holds.update(dict.fromkeys(server.participants, server.voted))
        if server.round % self.options.communication_period == 0:
            ballots = [self.ballot(u) for u in uploads]
            scores = vote(ballots, [self.weight(u) for u in uploads])
            before, server.labels, server.voted = server.labels, plurality(scores), server.round
            server.seen = observed([u.client for u in uploads], ballots, scores, server.labels)
            if before is not None:
                server.seen[-1, "changed"] = float((before != server.labels).sum())
            server.uploads.update({u.client: server.uploads.get(u.client, 0) + 1 for u in uploads})

    def ballot(self, upload: Upload) -> Tensor:
        """`[U, C]`: ones at the classes that a client votes for."""
        return upload.rows if "rows" in upload else F.one_hot(upload.labels, self.context.classes)

    def weight(self, upload: Upload) -> Tensor:
        """`[U]`: what a client's votes weigh."""
        return torch.ones(self.context.public)

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        spent = cache(self.spent)
        budgets = {
            (client, name): value
            for client in server.participants
            for name, value in spent(server.uploads.get(client, 0)).items()
        }
        return budgets | (server.seen if server.voted == server.round else {})


@dataclass
class Relabelled:
    """The public images with other labels."""

    images: Batches
    labels: Tensor

    @property
    def key(self) -> tuple[int | str, ...]:
        return self.images.key

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.images.batch(index)[0], self.labels[index]


def weighted_sum(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus `s.lam` times the loss on voted labels, if any; two forward passes, private first."""
    private, public = batch
    own = task_loss(net, private)
    if public is None:
        return own
    images, voted = public
    return own + s.lam * F.cross_entropy(net(images), voted)


def observed(
    clients: Sequence[int], ballots: Sequence[Tensor], scores: Tensor, labels: Tensor
) -> dict[tuple[int, str], float]:
    """How often each ballot agrees with the outcome, and by how much the outcome wins on average."""
    best = scores.topk(2, dim=1).values
    seen = {(-1, "margin"): float((best[:, 0] - best[:, 1]).mean())}
    for client, ballot in zip(clients, ballots, strict=True):
        seen[client, "agreement"] = float(ballot.gather(1, labels[:, None]).double().mean())
    return seen
