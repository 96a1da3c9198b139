"""FedPHP: federated personalization with inherited private models (Li, Zhan, Shao, Li, Song; ECML PKDD 2021).

Private: the inherited private model, a moving average of the client's own trained models, with its running statistics,
and how often the client took part. Up and down: the whole trained model, as in FedAvg. The inherited model is what is
evaluated, and the teacher of training: as the last participation left it, in evaluation mode, with fixed statistics.

Where we decide:
- A client that never took part has the start model; its first average is its first trained model.
- The share of the past grows with the participations that a client can expect, u T / v, in whole numbers. One port
  divides by the current round instead, so that it is near its limit from the start.
- `predictor=ensemble`, the mean of two models' probabilities, is in the authors' code and unused there.
- The teacher's outputs are computed once a round, for all images; where batches are augmented, for each as it is.
- PFLlib's FedPHP is another method: it starts training from a mix of both models and pulls to the global one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.engine.fit import Batches, Loss
from fedbench.engine.losses import task_loss_through
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Upload
from fedbench.module.weights import Weights


class FedPHP(Method["FedPHP.Options", "FedPHP.State"]):
    """A moving average of the client's models is the teacher and the personal model."""

    about = About(
        "a moving average of own models teaches the training and is the personal model",
        "self-distillation",
        "Li et al., ECML PKDD",
        2021,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg": [{"method.lam": 0, "point": "global"}, {"method.lam": 0, "method.mu": 0, "point": "after_fit"}],
        "fedavg:weighting=uniform": {"method.lam": 0, "method.weighting": "uniform", "point": "global"},
        "local": {"method.lam": 0, "method.mu": 0, "partition.clients": 1},
    }

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

    @dataclass
    class State(PrivateState):
        inherited: Weights | None = None
        participations: int = 0

    def check(self) -> Iterable[str]:
        if self.options.lam:
            self.refuse_private_steps("a loss with the inherited model")
        for name, value in (("transfer", "kd"), ("predictor", "ensemble")):
            if getattr(self.options, name) == value and not self.context.classes:
                raise ConfigError(f"method.{name} = '{value}': works on class scores, and the targets are numbers")
        if self.options.transfer != "kd":
            self.context.layout.mask("head")
        return ()

    def train(self, client: Client[State], received: Weights) -> Upload:
        past, count = inherited_model(client), client.state.participations
        trained = client.fit(
            received, client.train, loss=self._distillation_loss(client, past) if self.options.lam else None
        )
        share = past_share(
            self.options.mu, count, self.context.rounds, self.context.participants_per_round, self.context.clients
        )
        upload = self.upload(client, trained, traces={"past_share": share})
        client.state.inherited = trained.replace(
            params=torch.lerp(trained.params, past.params, share),
            buffers=torch.lerp(trained.buffers, past.buffers, share),
        )
        client.state.participations = count + 1
        return upload

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights | Predictor:
        """The inherited model, or its mean with the current one."""
        past = inherited_model(client)
        return past if self.options.predictor == "hpm" else Predictor(partial(mean_scores, client, (past, model)))

    def join(self, client: Client[State], received: Weights) -> Weights | Predictor:
        """What is inherited is the received model, as before round 1."""
        client.state.inherited = received
        return super().join(client, received)

    def _distillation_loss(self, client: Client[State], teacher: Weights) -> Loss:
        """The loss that compares outputs with the teacher's `[n, d]`."""
        learner, kd = client.learner, self.options.transfer == "kd"
        transfer = {"mmd": discrepancy, "kd": distillation, "l2": half_squared_distance}[self.options.transfer]

        def teach(data: Batches) -> Tensor:
            """The teacher's class probabilities or features `[n, d]` of images."""
            if kd:
                return (learner.logits(teacher, data).to(learner.dtype) / self.options.kd_temperature).softmax(1)
            return learner.features(teacher, data).flatten(1).to(learner.dtype)

        function = partial(transfer_loss, name="" if kd else self.context.layout.head_name or "", transfer=transfer)
        return client.distillation_loss(function, teach, client.train, lam=self.options.lam)


def mean_scores(client: Client, models: tuple[Weights, ...], data: Batches) -> Tensor:
    """Logarithm of the mean of the models' class probabilities `[n, C]`."""
    logs = [client.learner.logits(model, data).log_softmax(1) for model in models]
    return torch.stack(logs).logsumexp(0) - torch.tensor(float(len(logs))).log()


def inherited_model(client: Client[FedPHP.State]) -> Weights:
    """The client's inherited private model; the start model before its first participation."""
    kept = client.state.inherited
    return client.initial if kept is None else kept


def past_share(mu: float, participations: int, rounds: int, participants: int, clients: int) -> float:
    """mu_i (eq. 5): the share of the old model in the new one, by earlier participations."""
    return min(mu * participations / max(participants * rounds // clients, 1), mu)


def transfer_loss(
    net: LightningModule,
    batch: Any,
    s: Any,
    teacher: Tensor,
    name: str,
    transfer: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """(1 - lam) times the own loss plus lam times the transfer, in one pass; teacher: the teacher's outputs.

    name: of the head, or "" for the whole network.
    """
    loss, features, logits = task_loss_through(net, batch, name)
    with torch.autocast(teacher.device.type, enabled=False):
        return loss.to(teacher).lerp(transfer(features.flatten(1).to(teacher), logits.to(teacher), teacher), s.lam)


def discrepancy(features: Tensor, logits: Tensor, teacher: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of features `[n, d]` to the teacher's, with five kernels, all pairs counted."""
    n, both = len(features), torch.cat([features, teacher])
    both = both - both.detach().mean(0)  # distances stay, rounding shrinks
    norms = both.square().sum(1)
    squared = (norms[:, None] + norms - 2 * both @ both.T).clamp(min=0)  # [2n, 2n]
    base = squared.detach().sum() / (4 * n * n - 2 * n) + 1e-8  # the pairs of 2n
    halvings = 2.0 ** torch.arange(2, -3, -1, dtype=both.dtype, device=both.device)  # 4 to 1/4
    kernels = torch.exp(-squared * (halvings / base)[:, None, None]).sum(0)
    own, other = slice(n), slice(n, None)
    return (kernels[own, own] + kernels[other, other] - 2 * kernels[own, other]).mean()


def distillation(features: Tensor, logits: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy of the logits `[n, C]` to the teacher's probabilities; no temperature on this side."""
    return -(teacher * logits.log_softmax(1)).sum(1).mean()


def half_squared_distance(features: Tensor, logits: Tensor, teacher: Tensor) -> Tensor:
    """Half the mean squared distance of features `[n, d]` to the teacher's."""
    return (features - teacher).square().sum() / (2 * len(features))
