"""FedMosaic, personalised federated co-training (Abourayya, Kleesiek, Rao, Kamp; preprint 2025; builds on FedCT).

Private: everything; no parameter is sent. Up: a class index and an expertise number per public image; down: a
class index per public image, which the clients voted for. Training is local training plus a loss on the voted labels,
weighted by how much the client trusts them (lambda).

Where we decide:
- lambda is computed once a round with full-data losses (`lambda_update=round`): the paper's equation, notation table
  and figures say so; its Algorithm 1 recomputes it at every local step (`step`), FedCT's code at every batch.
- There are no labels before the first vote, at the end of round `first_vote`: local training until then, and lambda is
  NaN, not e. The paper does not say when that is. Models that cannot distinguish classes yet vote for one, which is
  easy to fit: lambda then exceeds 1 and all learn it. So the first vote is at the end of the round by which clients
  have made 80 gradient steps each, on average: round 1 with some thousand images a client, as in the paper, round 20
  with 100 in batches of 50 and two epochs. `first_vote=1` is literal.
- Expertise by entropy is log C - H: the printed H would trust the most uncertain. By class frequency it is the
  client's own class share. Both are at least `expertise_floor`, because the paper wants them positive.
- The paper gives the budget of one upload and composes nothing. Each round we trace what a client has spent so far:
  `epsilon` with delta `privacy_delta` by Rényi accounting, and the sums of the paper's figures (`epsilon_basic`,
  `delta_basic`), of which the expertise's is proved up to 1 only.
- `trace_bound` traces the terms of proposition 1 at the received model: the squared norm of the gradient of both
  losses, the variances of the gradients of single images, and `label_drift`, by how much the newest vote changes the
  weighted public loss. lambda is fixed within a round there, as in the proof.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, log
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.privacy import LabelNoise, NumberNoise, epsilon_at
from fedbench.engine.fit import Batches, Loss, PairedBatches
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.methods.base import About
from fedbench.methods.client import Client
from fedbench.methods.cotraining import CoTraining, PublicLabels, public_batch, weighted_sum
from fedbench.methods.messages import Encoded, Message, Upload, encoded, zero_bytes
from fedbench.methods.messages import Field as MessageField
from fedbench.module.weights import Weights
from fedbench.results.trace import Trace

TRUST = "Trust in the consensus"
"""The section on pages that shows what a client trusts."""


class FedMosaic(CoTraining["FedMosaic.Options"]):
    """Local training with labels of public images, which the clients vote on as experts."""

    about = About(
        "clients vote on labels of public samples and trust the vote as far as it helps",
        "co-training",
        "Abourayya et al., preprint",
        2025,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"method.lambda_mode": "fixed", "method.lambda_value": 0}}
    traces = (
        Trace(
            "lambda",
            "λ per client",
            "λ, weight of the consensus",
            "clients",
            section=TRUST,
            intro="Weight of the consensus in each client's loss; near 0 the client trains alone. Mean over seeds.",
        ),
        *(
            Trace(f"loss_{data}", "Loss on private and on public data", data, "flipped", chart="losses", section=TRUST)
            for data in ("private", "public")
        ),
        *CoTraining.traces,
    )
    needs = frozenset({"public", "classes"})
    also_sends = "their votes and their confidence"

    class Options(CoTraining.Options):
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
        expertise_sigma: float = Field(0.0, ge=0, description="standard deviation of Gaussian noise on expertise")
        privacy_delta: float = Field(1e-5, gt=0, lt=1, description="delta of the budgets that are reported")
        expertise_bits: int = Field(32, ge=1, le=32, description="bits counted for one expertise number")
        trace_bound: bool = Field(False, description="also trace gradients and what bounds them by proposition 1")

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return options.lambda_update == "epoch"

    def check(self) -> Iterable[str]:
        lines, options = super().check(), self.options
        if options.lambda_mode == "fixed" and options.lambda_update != "round":
            raise ConfigError(f"method.lambda_update = '{options.lambda_update}': a fixed lambda is never updated")
        if options.lambda_mode == "adaptive" and options.lambda_value != 1:
            raise ConfigError(
                f"method.lambda_value = {options.lambda_value}: lambda comes from the losses, set lambda_mode=fixed"
            )
        if options.expertise == "equal" and options.expertise_sigma:
            raise ConfigError("method.expertise_sigma > 0: equal expertise is not sent and gets no noise, set it to 0")
        if options.trace_bound and options.lambda_update != "round":
            raise ConfigError(
                f"method.trace_bound = true: proposition 1 needs one lambda per round, and method.lambda_update is "
                f"{options.lambda_update}; set it to round"
            )
        return lines

    def learn(self, client: Client, received: Weights, public: PublicLabels | None) -> tuple[Weights, dict[str, float]]:
        """The trained model, and the round's means of lambda and its two losses."""
        means = RoundMeans(client.learner.device)
        if public is None:
            trained = client.fit(received, client.train)
        elif self.makes_steps(self.options):
            trained = self._by_epoch(client, received, public, means)
        elif (loss := self._loss(client, received, public, means)) is None:
            trained = client.fit(received, client.train)
        else:
            trained = client.fit(received, PairedBatches(client.train, public, self._public_batch), loss=loss)
        traces = means.traces()
        if self.options.trace_bound and public is not None:
            traces |= self._bound_terms(client, received, public, traces["lambda"])
        return trained, traces

    def _bound_terms(self, client: Client, received: Weights, public: PublicLabels, lam: float) -> dict[str, float]:
        """The terms of proposition 1 at the received model."""
        learner, parts = client.learner, (client.train, public)
        slopes = [learner.full_gradient(received, data) for data in parts]
        own, others = (
            variance(slope, learner.squared_gradients(received, data))
            for slope, data in zip(slopes, parts, strict=True)
        )
        norm = float((slopes[0] + lam * slopes[1]).square().sum())
        terms = {"gradient_norm_squared": norm, "variance_private": own, "variance_public": others}
        if "labels_before" in client.message:
            earlier = PublicLabels(client.public, client.message.labels_before)
            drift = learner.loss(received, public) - learner.loss(received, earlier)
            terms["label_drift"] = lam * abs(drift)
        return terms

    def _loss(self, client: Client, received: Weights, public: PublicLabels, means: "RoundMeans") -> Loss | None:
        """The loss of every step of a round; None, the client's own, if lambda is 0."""
        if self.options.lambda_update == "step":
            eps = torch.full_like(means.count, self.options.lambda_eps)
            return Loss(step_trusted_loss, eps=eps, sums=means.sums, count=means.count)
        lam = self._trust(client, received, public, means)
        return Loss(weighted_sum, lam=lam) if lam > 0 else None

    def _by_epoch(self, client: Client, received: Weights, public: PublicLabels, means: "RoundMeans") -> Weights:
        """If lambda is 0, public images are skipped for the epoch and continue after it."""
        s_lam = received.params.new_zeros(())
        orders = client.learner.orders(public, "public", self._public_batch)
        others = (public.batch(index) for epoch in orders for index in epoch)
        with client.training(received, client.train, loss=Loss(weighted_sum, lam=s_lam)) as training:
            for epoch in training.epochs():
                with training.paused() as weights:
                    lam = self._trust(client, weights, public, means)
                s_lam.fill_(lam)
                for batch in epoch:
                    training.step((batch, next(others) if lam > 0 else None))
        return training.weights

    def _trust(self, client: Client, weights: Weights, public: Batches, means: "RoundMeans") -> float:
        """lambda (eq. 3) from the losses of these weights on all private and all public images."""
        own, others = client.learner.loss(weights, client.train), client.learner.loss(weights, public)
        fixed = self.options.lambda_mode == "fixed"
        lam = self.options.lambda_value if fixed else trust(own, others, self.options.lambda_eps)
        means.add(lam, own, others)
        return lam

    @property
    def _public_batch(self) -> int:
        return public_batch(self.options.public_batch_size, self.context)

    def votes(self, client: Client, trained: Weights) -> dict[str, MessageField]:
        """The upload: `labels` [U], or noisy one-hot `rows` [U, C], and `expertise` [U] unless it is equal."""
        stream = client.generator("privacy")
        logits = client.learner.logits(trained, client.public).cpu()  # [U, C]
        labels = logits.argmax(1)
        sent = self.noisy_labels(labels, stream)
        if self.options.expertise != "equal":
            expertise = self.expertise(logits, labels, client.train.labels.cpu())
            sent["expertise"] = self.noisy_expertise(expertise, stream)
        return sent

    def expertise(self, logits: Tensor, labels: Tensor, own: Tensor) -> Tensor:
        """E `[U]`, float64, before floor and noise; own: labels of the client's training images."""
        if self.options.expertise == "entropy":
            return certainty(logits)
        return class_shares(labels, own, self.context.classes)

    def noisy_expertise(self, expertise: Tensor, stream: torch.Generator) -> Encoded:
        """E as sent."""
        floor, sigma = self.options.expertise_floor, self.options.expertise_sigma
        expertise = expertise.clamp(min=floor)
        if sigma:
            expertise += sigma * torch.randn(len(expertise), dtype=torch.float64, generator=stream)
        return encoded(expertise.clamp(min=floor), self.options.expertise_bits)

    def send(self, server: CoTraining.Server, client: int) -> Message:
        message = super().send(server, client)
        if self.options.trace_bound and server.labels_before is not None:
            message.add(labels_before=zero_bytes(server.labels_before))
        return message

    def weight(self, upload: Upload) -> Tensor:
        return upload.expertise if "expertise" in upload else super().weight(upload)

    @cached_property
    def account(self) -> "Account":
        options = self.options
        most = log(self.context.classes) if options.expertise == "entropy" else 1.0
        noise = NumberNoise(options.expertise_sigma, most, self.context.public, options.privacy_delta)
        return Account(self.label_noise, noise, expertise_sent=options.expertise != "equal")

    def privacy_spent(self, uploads: int) -> dict[str, float]:
        return self.account.privacy_spent(uploads)

    def budget_lines(self) -> list[str]:
        return self.account.lines(self.most_uploads)


TRACED = ("lambda", "loss_private", "loss_public")


def trust(private: float, public: float, eps: float) -> float:
    """lambda in [0, e): 1 if both losses are equal, less if the public loss is larger (eq. 3)."""
    return exp(-(public - private) / (private + eps))


def variance(mean: Tensor, squares: Tensor) -> float:
    """The variance of gradients, summed over all parameters, from their mean and mean square `[N]`."""
    return float((squares - mean.square()).sum().clamp(min=0))


class RoundMeans:
    """Means over a round of lambda and its two losses. sums: float64 `[3]`; count: `[]`."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, lam: float, private: float, public: float) -> None:
        self.sums.add_(self.sums.new_tensor([lam, private, public]))
        self.count.add_(1)

    def traces(self) -> dict[str, float]:
        """The means by name; NaN without a lambda."""
        return dict(zip(TRACED, (self.sums / self.count).tolist(), strict=True))


def step_trusted_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """Both losses, with lambda computed from them on this step's batches, without gradient.

    s.eps: float64 `[]`; s.sums, s.count: of the round's means, updated in place.
    """
    private, (images, voted) = batch
    own = task_loss(net, private)
    others = F.cross_entropy(net(images), voted)
    losses = torch.stack([own.detach(), others.detach()]).to(torch.float64)
    lam = torch.exp((losses[0] - losses[1]) / (losses[0] + s.eps))
    s.sums.add_(torch.cat([lam[None], losses]))
    s.count.add_(1)
    return own + lam.to(others.dtype) * others


def certainty(logits: Tensor) -> Tensor:
    """log C - H of the predictions `[U, C]`, float64 `[U]`: 0 if uniform, log C if certain."""
    logs = logits.to(torch.float64).log_softmax(1)
    return log(logits.shape[1]) + (logs.exp() * logs).sum(1)


def class_shares(labels: Tensor, own: Tensor, classes: int) -> Tensor:
    """The share of each label `[U]` among a client's own labels, float64."""
    return own.bincount(minlength=classes).to(torch.float64)[labels] / len(own)


@dataclass(frozen=True)
class Account:
    """Budget of uploads with a label and, if `expertise_sent`, an expertise number per public image."""

    labels: LabelNoise
    expertise: NumberNoise
    expertise_sent: bool

    @property
    def in_the_clear(self) -> str | None:
        """The warning on labels or expertise sent without noise."""
        if self.labels.kind == "none":
            return "labels are sent without noise (method.label_privacy)"
        if self.expertise_sent and not self.expertise.sigma:
            return "expertise is sent without noise (method.expertise_sigma, or method.expertise=equal)"
        return None

    def privacy_spent(self, uploads: int) -> dict[str, float]:
        """epsilon: of all uploads, at the expertise's delta; epsilon_basic, delta_basic: the paper's times uploads.

        Infinite if only one of labels and expertise has noise; empty if neither has.
        """
        labels, expertise, delta = self.labels.budget, self.expertise.budget, self.expertise.delta
        if not labels + expertise:
            return {}
        if uploads and self.in_the_clear:
            return {"epsilon": inf, "epsilon_basic": inf, "delta_basic": inf}
        return {
            "epsilon": self._epsilon_after(uploads),
            "epsilon_basic": uploads * (labels + expertise),
            "delta_basic": uploads * delta if expertise else 0.0,
        }

    def _epsilon_after(self, uploads: int) -> float:
        """Epsilon of the uploads by Rényi accounting, or the sum of the labels' own if that is less."""
        of_labels, of_expertise, delta = self.labels.divergence, self.expertise.divergence, self.expertise.delta
        together = epsilon_at(uploads * (of_labels + of_expertise), delta)
        return min(together, uploads * self.labels.budget + epsilon_at(uploads * of_expertise, delta))

    def lines(self, uploads: int) -> list[str]:
        """Lines before round 1 on the budget of one and all uploads of a client; none without noise."""
        labels, expertise, delta = self.labels.budget, self.expertise.budget, self.expertise.delta
        if not labels + expertise:
            return []
        lines = [
            f"fedmosaic: one upload spends epsilon {labels + expertise:.6g} (labels {labels:.6g}, expertise "
            f"{expertise:.6g}) with delta {delta:g}, all {uploads} of them {uploads} times both by basic composition"
        ]
        if (clear := self.in_the_clear) is None:
            spent = self.privacy_spent(uploads)["epsilon"]
            lines[0] += f", and epsilon {spent:.6g} with delta {delta:g} by Rényi accounting"
        else:
            lines.append(f"fedmosaic: {clear}, so a whole upload has no privacy guarantee")
        if expertise > 1:
            lines.append(f"fedmosaic: the epsilon of the expertise, {expertise:.6g}, is proved for values up to 1 only")
        return lines
