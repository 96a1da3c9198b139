"""Co-training by hard labels: the common part of methods whose clients vote on labels of public images.

Private: everything; no parameter is sent. Up: a class index per public image, and additions of a method; down: a class
index per public image. Only clients of the round vote, ties go to the lowest class, and labels stay until there are
newer ones. A client that has the newest labels is not sent them again.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor
from typing_extensions import TypeVar

from fedbench.aggregation.privacy import LabelNoise
from fedbench.aggregation.votes import plurality, vote
from fedbench.engine.fit import AMOUNT, Batches
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.methods.client import Client
from fedbench.methods.local import Local
from fedbench.methods.messages import Field as MessageField
from fedbench.methods.messages import Message, Upload, encoded
from fedbench.methods.server import Context, ServerState, ServerT
from fedbench.module.seeds import Key
from fedbench.module.weights import Weights
from fedbench.results.trace import Trace

LEARNT = 80
"""Gradient steps of local training after which a client's outputs are worth an exchange."""

ExchangeOptions = TypeVar("ExchangeOptions", bound="PublicExchange.Options", default="PublicExchange.Options")
VoteOptions = TypeVar("VoteOptions", bound="CoTraining.Options", default="CoTraining.Options")


class PublicExchange(Local[ExchangeOptions, ServerT]):
    """Local training whose clients exchange only their outputs on public images."""

    class Options(Local.Options):
        public_batch_size: int | None = Field(
            None, ge=1, description="public samples per step; none: the batch size, or all if that is full"
        )
        first_vote: int | None = Field(
            None,
            ge=1,
            description="rounds of local training before the first exchange; none: until clients have made 80 steps",
        )

    needs = frozenset({"public"})

    def check(self) -> Iterable[str]:
        public_batch(self.options.public_batch_size, self.context)
        first, rounds = self.first_vote, self.context.rounds
        if first >= rounds > 1:
            why = "" if self.options.first_vote else f" (after {LEARNT} gradient steps of a client)"
            line = (
                f"method.first_vote = {first}{why}: none of {rounds} rounds uses an exchange, so this is local training"
            )
            return [line]
        return []

    def exchanges(self, round: int) -> bool:
        """Whether clients send their outputs on public images at the end of a round."""
        return round >= self.first_vote

    @cached_property
    def first_vote(self) -> int:
        """The first round at whose end outputs are exchanged: the given one, or the one by which clients have learnt.

        That is the first by which a client makes `LEARNT` gradient steps of local training, in the mean over clients
        and draws of participants. It depends on nothing that is learnt, nor on the number of rounds.
        """
        context = self.context
        if self.options.first_vote is not None:
            return self.options.first_vote
        steps = sum(AMOUNT.steps_on(size, context.train) for size in context.sizes) * context.participants_per_round
        return max(1, -(-LEARNT * context.clients**2 // steps)) if steps else 1


class CoTraining(PublicExchange[VoteOptions, "CoTraining.Server"]):
    """Local training and a vote. A method defines how training uses the voted labels."""

    traces: ClassVar[tuple[Trace, ...]] = (
        Trace("agreement", "Agreement with the consensus", "agreement with the consensus, %", is_share=True),
        Trace(
            "consensus_accuracy",
            "Accuracy of the consensus",
            "correct voted labels, %",
            chart="consensus",
            is_share=True,
            note="Compared with the public set's labels, which no client learns from.",
        ),
    )

    class Options(PublicExchange.Options):
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

    @dataclass
    class Server(ServerState):
        """labels: the newest ones `[U]`; labels_before: those of the vote before; voted: the round of the newest.

        holds: the round of each client's labels; uploads: of each client, so far.
        """

        labels: Tensor | None = None
        labels_before: Tensor | None = None
        voted: int = 0
        holds: dict[int, int] = field(default_factory=dict)
        uploads: dict[int, int] = field(default_factory=dict)

    def check(self) -> Iterable[str]:
        options = self.options
        if (options.label_privacy == "none") != (options.label_epsilon is None):
            raise ConfigError(
                f"method.label_privacy = '{options.label_privacy}', method.label_epsilon = {options.label_epsilon}: "
                "krr and xor need a budget above 0, none needs no budget"
            )
        if options.label_privacy == "none" and options.label_sensitivity is not None:
            raise ConfigError("method.label_sensitivity: there is no noise on labels, set method.label_privacy")
        return [*super().check(), *self.budget_lines()]

    def exchanges(self, round: int) -> bool:
        return super().exchanges(round) and round % self.options.communication_period == 0

    def train(self, client: Client, received: Weights) -> Upload:
        public = PublicLabels(client.public, client.message.labels) if "labels" in client.message else None
        trained, traces = self.learn(client, received, public)
        votes = self.votes(client, trained) if self.exchanges(client.round) else {}
        return self.upload(client, trained, traces=traces, **votes)

    @abstractmethod
    def learn(
        self, client: Client, received: Weights, public: "PublicLabels | None"
    ) -> tuple[Weights, dict[str, float]]:
        """The trained model and the round's traces; public: the public images with the newest labels, if any."""

    def votes(self, client: Client, trained: Weights) -> dict[str, MessageField]:
        """The upload: `labels` [U], or noisy one-hot `rows` [U, C]."""
        labels = client.learner.logits(trained, client.public).cpu().argmax(1)
        return self.noisy_labels(labels, client.generator("privacy"))

    def noisy_labels(self, labels: Tensor, stream: torch.Generator) -> dict[str, MessageField]:
        """The labels as sent."""
        sent = self.label_noise.noisy(labels, stream)
        if self.options.label_privacy == "xor":
            return {"rows": encoded(sent, bits=1)}
        return {"labels": encoded(sent, self.label_bits)}

    @property
    def label_bits(self) -> int:
        """Bits of one class index."""
        return (self.context.classes - 1).bit_length()

    @cached_property
    def label_noise(self) -> LabelNoise:
        options, public = self.options, self.context.public
        worst = {"krr": public, "xor": 2 * public, "none": 0}[options.label_privacy]
        changed = options.label_sensitivity or worst
        return LabelNoise(options.label_privacy, self.context.classes, options.label_epsilon or 0.0, changed)

    def budget_lines(self) -> list[str]:
        """Lines before round 1 on the budget of uploads; none without noise."""
        each, uploads, name = self.label_noise.budget, self.most_uploads, self.context.method
        if not each:
            return []
        return [f"{name}: one upload spends epsilon {each:.6g}, all {uploads} of them {uploads * each:.6g}"]

    def privacy_spent(self, uploads: int) -> dict[str, float]:
        """Budget spent by a client's uploads, for traces; empty without noise."""
        each = self.label_noise.budget
        return {"epsilon": uploads * each} if each else {}

    @property
    def most_uploads(self) -> int:
        """Uploads of a client that takes part in every round of the run."""
        return sum(map(self.exchanges, range(1, self.context.rounds + 1)))

    def send(self, server: Server, client: int) -> Message:
        message = super().send(server, client)
        if server.labels is not None:
            held = server.holds.get(client) == server.voted
            message.add(labels=encoded(server.labels, bits=0 if held else self.label_bits))
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        server.holds.update(dict.fromkeys(server.participants, server.voted))
        if self.exchanges(server.round):
            self._vote(server, uploads)
        for client in server.participants:
            for name, value in self.privacy_spent(server.uploads.get(client, 0)).items():
                server.trace(name, value, client)

    def _vote(self, server: Server, uploads: list[Upload]) -> None:
        """Computes the new labels; traces their accuracy, margin, agreement and changes."""
        ballots = [self.ballot(u) for u in uploads]
        scores = vote(ballots, [self.weight(u) for u in uploads])
        server.labels_before, server.labels, server.voted = server.labels, plurality(scores), server.round
        best = scores.topk(2, dim=1).values
        if self.context.label_accuracy:
            server.trace("consensus_accuracy", self.context.label_accuracy(server.labels))
        if reason := self.collapse(server.labels):
            server.mark_degenerate(reason)
        server.trace("margin", float((best[:, 0] - best[:, 1]).mean()))
        for u, ballot in zip(uploads, ballots, strict=True):
            server.trace("agreement", float(ballot.gather(1, server.labels[:, None]).double().mean()), u.client)
            server.uploads[u.client] = server.uploads.get(u.client, 0) + 1
        if server.labels_before is not None:
            server.trace("changed", float((server.labels_before != server.labels).sum()))

    def collapse(self, labels: Tensor) -> str:
        """Why voted labels `[U]` teach nothing: one class has most of them, wrongly, or they are worse than chance."""
        classes, accuracy = self.context.classes, self.context.label_accuracy
        right = None if accuracy is None else accuracy(labels)
        if right is not None and right < 1 / classes:
            return "the clients' vote on public samples agrees with their labels less than chance would"
        most = int(labels.bincount(minlength=classes).max()) / len(labels)
        if classes > 2 and most > 0.5 and (right is None or right <= 0.5):
            return "the clients' vote names one class for most public samples; let them train alone first"
        return ""

    def ballot(self, upload: Upload) -> Tensor:
        """A client's votes `[U, C]`: 1 at the classes that it votes for."""
        return upload.rows if "rows" in upload else F.one_hot(upload.labels, self.context.classes)

    def weight(self, upload: Upload) -> Tensor:
        """Weights `[U]` of a client's votes."""
        return torch.ones(self.context.public)


def public_batch(batch_size: int | None, context: Context) -> int:
    """Public images per step; batch_size: `method.public_batch_size`. Raises ConfigError if there are fewer."""
    size, images = context.train.batch_size, context.public
    if batch_size and batch_size > images:
        raise ConfigError(f"method.public_batch_size = {batch_size}: there are {images} public samples")
    return batch_size or (images if size == "full" else min(int(size), images))


@dataclass
class PublicLabels:
    """The public images with other labels."""

    images: Batches
    labels: Tensor

    @property
    def key(self) -> Key:
        return self.images.key

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.images.batch(index)[0], self.labels[index]


def weighted_sum(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus `s.lam` times the loss on voted labels, if any; two forward passes, private first."""
    private, public = batch
    loss = task_loss(net, private)
    if public is None:
        return loss
    images, voted = public
    return loss + s.lam * F.cross_entropy(net(images), voted)
