"""FedPHP: federated personalization with inherited private models (Li, Zhan, Shao, Li, Song; ECML PKDD 2021).

Private: the inherited private model, a moving average of the client's own trained models, with its running statistics,
and how often the client took part. Up and down: the whole trained model, as in FedAvg. The inherited model is what is
evaluated, and the teacher of training: as the last participation left it, in evaluation mode, with fixed statistics.

Where we decide:
- A client that never took part holds the start model; its first average is simply its first trained model.
- The share of the past grows with the participations that a client can expect, u T / v, in whole numbers. One port
  divides by the current round instead, so that it is near its limit from the start.
- `predictor=ensemble`, the mean of two models' probabilities, is in the authors' code and unused there.
- The teacher's outputs are computed once a round, for all images; where batches are augmented, for each as it is.
- PFLlib's FedPHP is another method: it starts training from a mix of both models and pulls to the global one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.optim import Optimizer

from fedbench.learner.learner import Batches, Learner
from fedbench.learner.loop import task_loss_through
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, OneBatch, Predictor, Upload


class FedPHP(Method):
    """A moving average of own models teaches the local training, and is the personal model."""

    class Options(Method.Options):
        lam: float = Field(0.1, ge=0, le=1, description="weight of the transfer, 1 - lam that of the own loss")
        mu: float = Field(0.9, ge=0, lt=1, description="largest share of the past in the inherited model, eq. 5")
        transfer: Literal["mmd", "kd", "l2"] = Field(
            "mmd", description="from the teacher: distribution of features, class probabilities, or features one by one"
        )
        kd_temperature: float = Field(4.0, gt=0, description="temperature of the teacher's probabilities")
        predictor: Literal["hpm", "ensemble"] = Field(
            "hpm", description="evaluated: the inherited model, or its mean with the current one"
        )

    def check(self) -> None:
        if self.options.transfer != "kd":
            self.context.layout.mask("head")

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        past, count = inherited(client), client.state.get("participations", 0)
        lesson = self._lesson(client, past)
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"), **lesson)
        share = past_share(self.options.mu, count, self.context.rounds, self.context.drawn, self.context.clients)
        now = trained.replace(
            params=torch.lerp(trained.params, past.params, share),
            buffers=torch.lerp(trained.buffers, past.buffers, share),
        )
        upload = self.upload(client, trained, traces={"past_share": share})
        client.state |= {f"inherited/{name}": part for name, part in vars(now).items()}
        client.state["participations"] = count + 1
        client.fitted = self._predictor(client, now, trained)
        return upload

    def _lesson(self, client: Client, teacher: Weights) -> dict[str, Any]:
        """The loss that compares with the teacher's outputs `[n, d]`; nothing without transfer."""
        options, learner = self.options, client.learner
        if not options.lam:
            return {}
        outputs = partial(self._outputs, learner, teacher)
        state = {"lam": torch.tensor(options.lam, dtype=learner.dtype, device=learner.device)}
        transfer = {"mmd": discrepancy, "kd": distillation, "l2": half_squared_distance}[options.transfer]
        part = learner.module if options.transfer == "kd" else learner.head
        lesson: dict[str, Any] = {"loss": partial(taught_loss, part=part, transfer=transfer)}
        if learner.alters(client.train):
            lesson["before_step"] = partial(teach, learner=learner, key=client.train.key, outputs=outputs)
        return lesson | {"state": state | {"outputs": outputs(client.train)}}

    def _outputs(self, learner: Learner, teacher: Weights, data: Batches) -> Tensor:
        """Class probabilities or features `[n, d]` that the teacher makes of images."""
        if self.options.transfer == "kd":
            return (learner.logits(teacher, data).to(learner.dtype) / self.options.kd_temperature).softmax(1)
        return learner.features(teacher, data).flatten(1).to(learner.dtype)

    def personal(self, client: Client, download: Message) -> Predictor:
        return self._predictor(client, inherited(client), self.receive(client, download))

    def _predictor(self, client: Client, past: Weights, current: Weights) -> Predictor:
        return past if self.options.predictor == "hpm" else Ensemble(client, (past, current))


@dataclass
class Ensemble:
    """A predictor of the mean of its models' class probabilities, as logarithms."""

    client: Client
    models: tuple[Weights, Weights]

    def __call__(self, data: Batches) -> Tensor:
        logs = [self.client.learner.logits(model, data).log_softmax(1) for model in self.models]
        return torch.stack(logs).logsumexp(0) - torch.tensor(float(len(logs))).log()


def inherited(client: Client) -> Weights:
    """The client's inherited private model; the start model before its first participation."""
    names = ("params", "buffers", "counters")
    return Weights(**{n: client.state.get(f"inherited/{n}", getattr(client.initial, n)) for n in names})


def past_share(mu: float, participations: int, rounds: int, drawn: int, clients: int) -> float:
    """mu_i (eq. 5): the share of the old model in the new one, after so many earlier participations."""
    return min(mu * participations / max(drawn * rounds // clients, 1), mu)


def teach(
    batch: Any,
    optimizer: Optimizer,
    s: Any,
    learner: Learner,
    key: tuple[int | str, ...],
    outputs: Callable[[Batches], Tensor],
) -> None:
    """Before a step on images that are not the data's: what the teacher makes of these."""
    student = learner.weights()
    s.outputs[s.index] = outputs(OneBatch(batch[0], batch[1], key))
    learner.load(student)


def taught_loss(
    net: LightningModule, batch: Any, s: Any, part: nn.Module, transfer: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """(1 - lam) times the own loss plus lam times the transfer, in one pass. part: the head, or the whole network."""
    loss, features, logits = task_loss_through(net, batch, part)
    taught = s.outputs.index_select(0, s.index)
    with torch.autocast(taught.device.type, enabled=False):
        return loss.to(taught).lerp(transfer(features.flatten(1).to(taught), logits.to(taught), taught), s.lam)


def discrepancy(features: Tensor, logits: Tensor, taught: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of features `[n, d]` to the teacher's, with five kernels, all pairs counted."""
    value: Tensor = Discrepancy.apply(features, taught)
    return value


class Discrepancy(torch.autograd.Function):
    """`discrepancy` with its gradient written out, for which autograd takes some per cent of a small net's step."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, taught: Tensor) -> Tensor:
        n, both = len(features), torch.cat([features, taught])
        both -= both.mean(0)  # distances stay, rounding shrinks
        norms = both.square().sum(1)
        squared = torch.addmm(norms[:, None] + norms, both, both.T, alpha=-2).clamp_(min=0)  # [2n, 2n]
        base = squared.sum() / (4 * n * n - 2 * n) + 1e-8  # the pairs of 2n, without gradient
        halvings = 2.0 ** torch.arange(2, -3, -1, dtype=both.dtype, device=both.device)  # 4 to 1/4
        rates = (halvings / base)[:, None, None]
        kernels = torch.exp(squared * -rates)
        own, other = slice(n), slice(n, None)
        slopes = (kernels[:, own] * rates).sum(0)  # [n, 2n]: of the kernels, by the squared distance, their sign turned
        slopes[:, own] *= -1
        ctx.save_for_backward((slopes.sum(1, keepdim=True) * both[own] - slopes @ both) * (4 / n**2))
        total = kernels.sum(0)
        return (total[own, own] + total[other, other] - 2 * total[own, other]).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0] * slope, None


def distillation(features: Tensor, logits: Tensor, taught: Tensor) -> Tensor:
    """Cross-entropy of the logits `[n, C]` to the teacher's probabilities; no temperature on this side."""
    return -(taught * logits.log_softmax(1)).sum(1).mean()


def half_squared_distance(features: Tensor, logits: Tensor, taught: Tensor) -> Tensor:
    """Half the mean squared distance of features `[n, d]` to the teacher's."""
    return (features - taught).square().sum() / (2 * len(features))
