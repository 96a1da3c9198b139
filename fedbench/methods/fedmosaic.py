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
- The paper gives the budget of one upload and composes nothing. Each round we trace what a client has spent so far:
  `epsilon` with delta `privacy_delta` by Rényi accounting, and the sums of the paper's figures (`epsilon_basic`,
  `delta_basic`), of which the expertise's is proved up to 1 only.

Longer than other method files because it has three kinds of trust and the accounts of two kinds of noise.
"""

from collections.abc import Sequence
from functools import partial
from math import exp, inf, log, nan
from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.learner.learner import Batches
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Context, Upload
from fedbench.methods.cotraining import CoTraining, Relabelled, weighted_sum
from fedbench.methods.privacy import ORDERS, epsilon_at, gaussian_divergence, gaussian_epsilon, response_divergence


class FedMosaic(CoTraining):
    """Local training, helped by labels of public images that the clients vote on as experts."""

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

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self.wire = {**self.wire, "expertise": options.expertise_bits}

    def check(self) -> None:
        super().check()
        options = self.options
        if options.lambda_mode == "fixed" and options.lambda_update != "round":
            raise ConfigError(f"method.lambda_update = '{options.lambda_update}': a fixed lambda is never updated")
        if options.lambda_mode == "adaptive" and options.lambda_value != 1:
            raise ConfigError(
                f"method.lambda_value = {options.lambda_value}: lambda comes from the losses, set lambda_mode=fixed"
            )
        if options.expertise == "equal" and options.expertise_sigma:
            raise ConfigError("method.expertise_sigma > 0: equal expertise is not sent and gets no noise, set it to 0")

    # -- what noise spends --------------------------------------------------------------------------------------------

    def warnings(self) -> list[str]:
        labels, expertise, delta = self.label_budget(), self.expertise_budget(), self.options.privacy_delta
        if not labels + expertise:
            return []
        uploads = self.uploads()
        lines = [
            f"fedmosaic: one upload spends epsilon {labels + expertise:.6g} (labels {labels:.6g}, expertise "
            f"{expertise:.6g}) with delta {delta:g}, all {uploads} of them {uploads} times both by basic composition"
        ]
        if (clear := self._in_the_clear()) is None:
            spent = self.spent(uploads)["epsilon"]
            lines[0] += f", and epsilon {spent:.6g} with delta {delta:g} by Rényi accounting"
        else:
            lines.append(f"fedmosaic: {clear}, so that nothing is promised for an upload as a whole")
        if expertise > 1:
            lines.append(f"fedmosaic: the epsilon of the expertise, {expertise:.6g}, is proved for values up to 1 only")
        return lines

    def expertise_budget(self) -> float:
        """Epsilon that one upload spends on expertise; 0 without noise, where nothing is promised."""
        options = self.options
        if not options.expertise_sigma:
            return 0.0
        return gaussian_epsilon(self._most(), self.context.public, options.expertise_sigma, options.privacy_delta)

    def spent(self, uploads: int) -> dict[str, float]:
        """epsilon: of all uploads, with delta `privacy_delta`; epsilon_basic, delta_basic: the paper's times uploads.

        Infinite where one of labels and expertise has noise and the other is sent without.
        """
        labels, expertise, delta = self.label_budget(), self.expertise_budget(), self.options.privacy_delta
        if not labels + expertise:
            return {}
        if uploads and self._in_the_clear():
            return {"epsilon": inf, "epsilon_basic": inf, "delta_basic": inf}
        return {
            "epsilon": self._accounted(uploads),
            "epsilon_basic": uploads * (labels + expertise),
            "delta_basic": uploads * delta if expertise else 0.0,
        }

    def _accounted(self, uploads: int) -> float:
        """Epsilon of so many uploads by Rényi accounting, or the sum of the labels' own where that is less."""
        options, of_labels, of_expertise = self.options, 0 * ORDERS, 0 * ORDERS
        if options.label_privacy == "krr":
            of_labels = self.sensitivity() * response_divergence(options.label_epsilon, self.context.classes)
        elif options.label_privacy == "xor":
            of_labels = self.sensitivity() * response_divergence(options.label_epsilon / self.sensitivity(), 2)
        if options.expertise_sigma:
            of_expertise = gaussian_divergence(self._most(), self.context.public, options.expertise_sigma)
        together = epsilon_at(uploads * (of_labels + of_expertise), options.privacy_delta)
        return min(together, uploads * self.label_budget() + epsilon_at(uploads * of_expertise, options.privacy_delta))

    def _most(self) -> float:
        """By how much one training image can change one expertise number."""
        return log(self.context.classes) if self.options.expertise == "entropy" else 1.0

    def _in_the_clear(self) -> str | None:
        """Which of labels and expertise is sent without noise."""
        if self.options.label_privacy == "none":
            return "labels are sent without noise (method.label_privacy)"
        if self.options.expertise != "equal" and not self.options.expertise_sigma:
            return "expertise is sent without noise (method.expertise_sigma, or method.expertise=equal)"
        return None

    # -- the client half ----------------------------------------------------------------------------------------------

    def train(self, client: Client, received: Weights, labels: Tensor | None) -> tuple[Weights, dict[str, float]]:
        """The trained model, and the round's mean of lambda and of the two losses that it comes from."""
        fit = partial(client.learner.fit, received, client.train, memory=client.memory("fit"))
        if labels is None:
            return fit(), as_traces([nan, nan, nan])
        public, state = Relabelled(client.public, labels), self._state(client)
        both: dict[str, Any] = {"second": (public, self.public_batch(), "public"), "state": state}
        weigh = partial(self._weigh, client, public)
        if self.options.lambda_update == "step":
            trained = fit(loss=step_trusted_loss, **both)
        elif self.options.lambda_update == "epoch":
            trained = fit(loss=weighted_sum, before_epoch=weigh, **both)
        else:
            trusted = weigh(0, received, SimpleNamespace(**state))
            trained = fit(loss=weighted_sum, **both) if trusted else fit()
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

    def _weigh(self, client: Client, public: Batches, epoch: int, weights: Weights, s: SimpleNamespace) -> bool:
        """Set lambda (eq. 3) from the losses of these weights on all private and all public images; is it above 0?"""
        own, others = client.learner.loss(weights, client.train), client.learner.loss(weights, public)
        fixed = self.options.lambda_mode == "fixed"
        lam = self.options.lambda_value if fixed else trust(own, others, self.options.lambda_eps)
        s.lam.fill_(lam)
        s.sums.add_(s.sums.new_tensor([lam, own, others]))
        s.count.add_(1)
        return lam > 0

    def votes(self, client: Client, trained: Weights) -> dict[str, Tensor]:
        """What is uploaded: `labels` [U], or noisy one-hot `rows` [U, C], and `expertise` [U] unless it is equal."""
        stream = client.generator("privacy")
        logits = client.learner.logits(trained, client.public).cpu()  # [U, C]
        labels = logits.argmax(1)
        sent = self.noisy_labels(labels, stream)
        if self.options.expertise != "equal":
            expertise = self.expertise(logits, labels, client.train.labels.cpu())
            sent["expertise"] = self._noisy_expertise(expertise, stream)
        return sent

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

    def weight(self, upload: Upload) -> Tensor:
        """`[U]`: what a client's votes weigh."""
        return upload.expertise if "expertise" in upload else torch.ones(self.context.public)


def step_trusted_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """Both losses with lambda computed from them, for this step's batches and without gradient."""
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


def trust(private: float, public: float, eps: float) -> float:
    """lambda in [0, e): 1 where both losses are equal, less where the public labels are the harder ones."""
    return exp(-(public - private) / (private + eps))


def certainty(logits: Tensor) -> Tensor:
    """log C - H of the predictions, float64: 0 for a uniform one, log C for a sure one."""
    logs = logits.to(torch.float64).log_softmax(1)
    return log(logits.shape[1]) + (logs.exp() * logs).sum(1)
