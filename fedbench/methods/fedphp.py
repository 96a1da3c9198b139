"""FedPHP: federated personalization with inherited private models (Li, Zhan, Shao, Li, Song; ECML PKDD 2021).

Private: the inherited private model, a moving average of the client's own trained models, with its running statistics,
and how often the client took part. Up and down: the whole trained model, as in FedAvg. The inherited model is what is
evaluated, and the teacher of training: as the last participation left it, in evaluation mode, with fixed statistics.

Where we decide:
- A client that never took part holds the start model; its first average is simply its first trained model.
- The share of the past grows with the participations that a client can expect, u T / v, in whole numbers. One port
  divides by the current round instead, so that it is near its limit from the start.
- `predictor=ensemble`, the mean of two models' probabilities, is in the authors' code and unused there.
- The teacher's outputs are computed once a round, for all images.
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

from fedbench.learner.learner import Batches
from fedbench.learner.loop import task_loss_through
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Upload


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
        data, loss = self._lesson(client, past)
        trained = client.learner.fit(received, data, memory=client.memory("fit"), **loss)
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

    def _lesson(self, client: Client, teacher: Weights) -> tuple[Batches, dict[str, Any]]:
        """The training images with the teacher's outputs, and the loss that compares; without transfer neither."""
        options, learner = self.options, client.learner
        if not options.lam:
            return client.train, {}
        state = {"lam": torch.tensor(options.lam, dtype=learner.dtype, device=learner.device)}
        if options.transfer == "kd":
            outputs = (learner.logits(teacher, client.train).to(learner.dtype) / options.kd_temperature).softmax(1)
            loss = partial(taught_loss, part=learner.module, transfer=distillation)
        else:
            outputs = learner.features(teacher, client.train).flatten(1).to(learner.dtype)
            transfer = discrepancy if options.transfer == "mmd" else half_squared_distance
            loss = partial(taught_loss, part=learner.head, transfer=transfer)
        return Taught(client.train, outputs), {"loss": loss, "state": state}

    def personal(self, client: Client, download: Message) -> Predictor:
        return self._predictor(client, inherited(client), self.receive(client, download))

    def _predictor(self, client: Client, past: Weights, current: Weights) -> Predictor:
        return past if self.options.predictor == "hpm" else Ensemble(client, (past, current))


@dataclass
class Taught:
    """Training images with what the teacher makes of each: batches of (images, labels, outputs)."""

    images: Batches
    outputs: Tensor

    @property
    def key(self) -> tuple[int | str, ...]:
        return self.images.key

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor) -> Any:
        return *self.images.batch(index), self.outputs[index]


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


def taught_loss(
    net: LightningModule, batch: Any, s: Any, part: nn.Module, transfer: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """(1 - lam) times the own loss plus lam times the transfer, in one pass. part: the head, or the whole network."""
    images, labels, taught = batch
    loss, features, logits = task_loss_through(net, (images, labels), part)
    with torch.autocast(images.device.type, enabled=False):
        return (1 - s.lam) * loss + s.lam * transfer(features.flatten(1).to(taught), logits.to(taught), taught)


def discrepancy(features: Tensor, logits: Tensor, taught: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of features `[n, d]` to the teacher's, with five kernels, all pairs counted."""
    both = torch.cat([features, taught])
    both = both - both.detach().mean(0)  # distances stay, rounding shrinks
    norms = both.square().sum(1)
    squared = (norms[:, None] + norms - 2 * both @ both.T).clamp(min=0)  # [2n, 2n]
    count = len(both)
    base = squared.detach().sum() / (count * count - count) + 1e-8
    kernels = torch.stack([torch.exp(-squared / (base / 4 * 2**i)) for i in range(5)]).sum(0)
    own, other = slice(count // 2), slice(count // 2, None)
    return (kernels[own, own] + kernels[other, other] - 2 * kernels[own, other]).mean()


def distillation(features: Tensor, logits: Tensor, taught: Tensor) -> Tensor:
    """Cross-entropy of the logits `[n, C]` to the teacher's probabilities; no temperature on this side."""
    return -(taught * logits.log_softmax(1)).sum(1).mean()


def half_squared_distance(features: Tensor, logits: Tensor, taught: Tensor) -> Tensor:
    """Half the mean squared distance of features `[n, d]` to the teacher's."""
    return (features - taught).square().sum() / (2 * len(features))
