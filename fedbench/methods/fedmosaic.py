"""FedMosaic, personalised federated co-training ("Whom to trust?", anonymous submission 2025; builds on FedCT).

Private: everything; no parameter ever travels. Up: a class index and an expertise number per public image; down: a
class index per public image, which the clients voted for. Training is local training plus a loss on the voted labels,
weighted by how much the client trusts them (lambda).

Where we decide:
- lambda is computed once a round with full-data losses (`lambda_update=round`): the paper's equation, notation table
  and figures say so; its Algorithm 1 recomputes it at every local step (`step`), FedCT's code at every batch.
- Round 1 has no labels yet and is local training; lambda is not e there but not a number.
- Expertise by entropy is log C - H: the printed H would trust the most uncertain. By class frequency it is the
  client's own class share. Both are at least `expertise_floor`, because the paper wants them positive.
- Only clients of this round vote; ties go to the lowest class. Their labels stay until there are newer ones.

Longer than other method files because it has two streams of data, three kinds of trust and the noise of two papers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log, nan
from types import SimpleNamespace
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
from fedbench.methods.privacy import flip_probability, flipped, gaussian_epsilon, randomised_response


class FedMosaic(Local):
    """Local training, helped by labels of public images that the clients vote on as experts."""

    class Options(Local.Options):
        expertise: Literal["class_frequency", "entropy", "equal"] = Field(
            "class_frequency", description="weight of a vote: own share of the class, certainty, or 1, table 4"
        )
        expertise_floor: float = Field(1e-6, gt=0, description="least weight of a vote")
        lambda_mode: Literal["adaptive", "fixed"] = Field(
            "adaptive", description="weight of the public loss: by both losses (eq. 3), or lambda_value"
        )
        lambda_value: float = Field(1.0, ge=0, description="weight of the public loss with lambda_mode=fixed")
        lambda_update: Literal["round", "epoch", "step"] = Field(
            "round", description="when lambda is computed: on all data each round or epoch, or on each step's batches"
        )
        lambda_eps: float = Field(1e-8, gt=0, description="added to the denominator of lambda, appendix B")
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
        expertise_sigma: float = Field(0.0, ge=0, description="standard deviation of Gaussian noise on expertise")
        privacy_delta: float = Field(1e-5, gt=0, lt=1, description="delta of the noise on expertise")
        expertise_bits: int = Field(32, ge=1, le=32, description="bits counted for one expertise number")

    needs_public = True

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        label_bits = (context.classes - 1).bit_length()
        self.wire = {"counters": 0, "labels": label_bits, "rows": 1, "expertise": options.expertise_bits}

    def check(self) -> None:
        options = self.options
        if (options.label_privacy == "none") != (options.label_epsilon is None):
            raise ConfigError(
                f"method.label_privacy = '{options.label_privacy}', method.label_epsilon = {options.label_epsilon}: "
                "krr and xor need a budget above 0, and none takes no budget"
            )
        if options.lambda_mode == "fixed" and options.lambda_update != "round":
            raise ConfigError(f"method.lambda_update = '{options.lambda_update}': a fixed lambda is never updated")
        if options.expertise == "equal" and options.expertise_sigma:
            raise ConfigError("method.expertise_sigma > 0: equal expertise is not sent and gets no noise, set it to 0")
        if options.public_batch_size and options.public_batch_size > self.context.public:
            raise ConfigError(
                f"method.public_batch_size = {options.public_batch_size}: there are {self.context.public} public images"
            )

    def warnings(self) -> list[str]:
        labels, expertise = self.upload_budget()
        if not labels + expertise:
            return []
        uploads = self.context.rounds // self.options.communication_period
        lines = [
            f"fedmosaic: one upload spends epsilon {labels + expertise:.6g} (labels {labels:.6g}, expertise "
            f"{expertise:.6g}) with delta {self.options.privacy_delta:g}, all {uploads} of them {uploads} times both"
        ]
        if expertise > 1:
            lines.append(f"fedmosaic: the epsilon of the expertise, {expertise:.6g}, is proved for values up to 1 only")
        return lines

    def upload_budget(self) -> tuple[float, float]:
        """Epsilon that one upload spends on labels and on expertise; 0 without noise, where nothing is promised."""
        options, images = self.options, self.context.public
        labels = options.label_epsilon or 0.0
        if options.label_privacy == "krr":
            labels *= options.label_sensitivity or images
        if not options.expertise_sigma:
            return labels, 0.0
        most = log(self.context.classes) if options.expertise == "entropy" else 1.0
        return labels, gaussian_epsilon(most, images, options.expertise_sigma, options.privacy_delta)

    # -- the client half ----------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        labels = download.labels if "labels" in download else None
        trained, traces = self._train(client, received, labels)
        votes = {} if client.round % self.options.communication_period else self.votes(client, trained)
        return self.upload(client, trained, traces=traces, **votes)

    def _train(self, client: Client, received: Weights, labels: Tensor | None) -> tuple[Weights, dict[str, float]]:
        """The trained model, and the round's mean of lambda and of the two losses that it comes from."""
        fit = partial(client.learner.fit, received, client.train, memory=client.memory("fit"))
        if labels is None:
            return fit(), as_traces([nan, nan, nan])
        public, state = Relabelled(client.public, labels), self._state(client)
        both: dict[str, Any] = {"second": (public, self._public_batch(), "public"), "state": state}
        weigh = partial(self._weigh, client, public)
        if self.options.lambda_update == "step":
            trained = fit(loss=step_trusted_loss, **both)
        elif self.options.lambda_update == "epoch":
            trained = fit(loss=trusted_loss, before_epoch=weigh, **both)
        else:
            weigh(0, received, SimpleNamespace(**state))
            trained = fit(loss=trusted_loss, **both) if state["sums"][0] > 0 else fit()
        return trained, as_traces((state["sums"] / state["count"]).tolist())

    def _state(self, client: Client) -> dict[str, Tensor]:
        """What the losses need: lambda, eps, and the sums of lambda and both losses with their count."""
        zeros = partial(torch.zeros, device=client.learner.device)
        return {
            "lam": zeros((), dtype=client.learner.dtype),
            "eps": zeros((), dtype=torch.float64) + self.options.lambda_eps,
            "sums": zeros(3, dtype=torch.float64),
            "count": zeros((), dtype=torch.float64),
        }

    def _weigh(self, client: Client, public: Batches, epoch: int, weights: Weights, s: SimpleNamespace) -> None:
        """Set lambda (eq. 3) from the losses of these weights on all private and all public images."""
        own, others = client.learner.loss(weights, client.train), client.learner.loss(weights, public)
        fixed = self.options.lambda_mode == "fixed"
        lam = self.options.lambda_value if fixed else trust(own, others, self.options.lambda_eps)
        s.lam.fill_(lam)
        s.sums.add_(s.sums.new_tensor([lam, own, others]))
        s.count.add_(1)

    def _public_batch(self) -> int:
        size, images = self.context.train.batch_size, self.context.public
        return self.options.public_batch_size or (images if size == "full" else min(size, images))

    def votes(self, client: Client, trained: Weights) -> dict[str, Tensor]:
        """What is uploaded: `labels` [U], or noisy one-hot `rows` [U, C], and `expertise` [U] unless it is equal."""
        stream = client.generator("privacy")
        logits = client.learner.logits(trained, client.public).cpu()  # [U, C]
        labels = logits.argmax(1)
        sent = self._noisy_labels(labels, stream)
        if self.options.expertise != "equal":
            expertise = self.expertise(logits, labels, client.train.labels.cpu())
            sent["expertise"] = self._noisy_expertise(expertise, stream)
        return sent

    def _noisy_labels(self, labels: Tensor, stream: torch.Generator) -> dict[str, Tensor]:
        options, classes = self.options, self.context.classes
        if options.label_privacy == "krr":
            labels = randomised_response(labels, classes, options.label_epsilon, stream)
        if options.label_privacy != "xor":
            return {"labels": labels}
        probability = flip_probability(options.label_epsilon / (options.label_sensitivity or 2 * len(labels)))
        return {"rows": flipped(F.one_hot(labels, classes).bool(), probability, stream)}

    def expertise(self, logits: Tensor, labels: Tensor, own: Tensor) -> Tensor:
        """E `[U]`, float64, before floor and noise; own: labels of the client's training images."""
        if self.options.expertise == "entropy":
            return certainty(logits)
        return own.bincount(minlength=self.context.classes).to(torch.float64)[labels] / len(own)

    def _noisy_expertise(self, expertise: Tensor, stream: torch.Generator) -> Tensor:
        floor, sigma = self.options.expertise_floor, self.options.expertise_sigma
        expertise = expertise.clamp(min=floor)
        if sigma:
            expertise += sigma * torch.randn(len(expertise), dtype=torch.float64, generator=stream)
        return expertise.clamp(min=floor)

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.labels, server.voted, server.holds, server.seen = None, 0, {}, {}

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
            server.labels, server.voted = plurality(scores), server.round
            server.seen = observed([u.client for u in uploads], ballots, scores, server.labels)

    def ballot(self, upload: Upload) -> Tensor:
        """`[U, C]`: ones at the classes that a client votes for."""
        return upload.rows if "rows" in upload else F.one_hot(upload.labels, self.context.classes)

    def weight(self, upload: Upload) -> Tensor:
        """`[U]`: what a client's votes weigh."""
        return upload.expertise if "expertise" in upload else torch.ones(self.context.public)

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        return server.seen if server.voted == server.round else {}


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


def trusted_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus lambda times the loss on voted labels; two forward passes, private first."""
    private, (images, voted) = batch
    own = task_loss(net, private)
    return own + s.lam * F.cross_entropy(net(images), voted)


def step_trusted_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The same with lambda computed from the losses of this step's batches, without gradient."""
    private, (images, voted) = batch
    own = task_loss(net, private)
    others = F.cross_entropy(net(images), voted)
    losses = torch.stack([own.detach(), others.detach()]).to(torch.float64)
    trust = torch.exp((losses[0] - losses[1]) / (losses[0] + s.eps))
    s.sums.add_(torch.cat([trust[None], losses]))
    s.count.add_(1)
    return own + trust.to(others.dtype) * others


def as_traces(trust: Sequence[float]) -> dict[str, float]:
    return dict(zip(("lambda", "loss_private", "loss_public"), trust, strict=True))


def observed(
    clients: Sequence[int], ballots: Sequence[Tensor], scores: Tensor, labels: Tensor
) -> dict[tuple[int, str], float]:
    """How often each ballot agrees with the outcome, and by how much the outcome wins on average."""
    best = scores.topk(2, dim=1).values
    seen = {(-1, "margin"): float((best[:, 0] - best[:, 1]).mean())}
    for client, ballot in zip(clients, ballots, strict=True):
        seen[client, "agreement"] = float(ballot.gather(1, labels[:, None]).double().mean())
    return seen


def trust(private: float, public: float, eps: float) -> float:
    """lambda in [0, e): 1 where both losses are equal, less where the public labels are the harder ones."""
    return exp(-(public - private) / (private + eps))


def certainty(logits: Tensor) -> Tensor:
    """log C - H of the predictions, float64: 0 for a uniform one, log C for a sure one."""
    logs = logits.to(torch.float64).log_softmax(1)
    return log(logits.shape[1]) + (logs.exp() * logs).sum(1)
