"""APFL: adaptive personalised federated learning (Deng, Kamani, Mahdavi; preprint 2020).

Private: a personal vector v with its running statistics, and its mixing weight alpha. Up and down: the global model w,
trained as in FedAvg. v is stepped along the gradient at alpha v + (1 - alpha) w, on the same batches as w.

Where we decide:
- Parameters are mixed (Algorithm 1). The authors' code mixes class scores (`mixing=logits`) after the step of w
  (`mix_with=updated`), and adds 0.02 alpha to the gradient of alpha (`alpha_decay`). In its gradient of alpha the
  gradients of both models are mixed; ours is the derivative.
- alpha moves in the first step of a round, as in the code; the paper derives a step for every iteration.
- v starts at w, so with the defaults alpha cannot move in round 1.
- The mean is uniform (Algorithm 1). v has its own running statistics, and a mixture mixes them.
- Two optimisers. Popular code has one, and steps w twice; or it trains v on its own loss and folds w into v.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.config import TrainConfig
from fedbench.engine.companion import Companion
from fedbench.engine.losses import outputs_of
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Upload
from fedbench.module.weights import Weights


class APFL(Method["APFL.Options", "APFL.State"]):
    """The personal model is alpha v + (1 - alpha) w, with alpha learned."""

    about = About("a learned mixture of a personal and the global model", "mixture", "Deng et al., preprint", 2020)
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg": {"method.alpha": 0, "method.alpha_update": "off", "method.weighting": "samples"}
    }

    class Options(Method.UniformOptions):
        alpha: float = Field(0.5, ge=0, le=1, description="first weight of the personal vector in the mixture")
        alpha_update: Literal["round", "step", "off"] = Field(
            "round", description="when alpha is learned: in a round's first step, in every step, or never"
        )
        alpha_lr: float | None = Field(
            None, ge=0, description="learning rate of alpha; none: the run's", json_schema_extra={"rate": "own"}
        )
        alpha_decay: float = Field(0.0, ge=0, description="decay of alpha, added to its gradient; 0.02 in popular code")
        mixing: Literal["parameters", "logits"] = Field(
            "parameters", description="what is mixed: parameters (Algorithm 1), or class scores (the authors' code)"
        )
        mix_with: Literal["previous", "updated"] = Field(
            "previous", description="the global copy in a step's mixture: before its step, or after it (the code)"
        )

    @dataclass
    class State(PrivateState):
        personal: Weights | None = None
        alpha: float | None = None

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return True

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return 2 * super().steps(options, train, samples, public)

    def check(self) -> Iterable[str]:
        if self.options.mixing == "logits" and not self.context.classes:
            raise ConfigError("method.mixing = 'logits': works on class scores, and the targets are numbers")
        return ()

    def train(self, client: Client[State], received: Weights) -> Upload:
        personal, alpha = self._model_and_alpha(client)
        with client.training(received, client.train) as training:
            mixture = AlphaMixture(client, self.options, training.beside(personal, client.memory("personal")), alpha)
            for batch in training:
                if self.options.mix_with == "previous":
                    mixture.step(batch)
                    training.step(batch)
                else:
                    training.step(batch)
                    mixture.step(batch)
        client.state.personal, client.state.alpha = mixture.own.finish(), float(mixture.alpha)
        return self.upload(client, training.weights, traces={"alpha": client.state.alpha})

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights | Predictor:
        """One model, or the mixture of two models' class scores."""
        personal, alpha = self._model_and_alpha(client)
        if self.options.mixing == "logits":
            logits = client.learner.logits
            return Predictor(lambda data: alpha * logits(personal, data) + (1 - alpha) * logits(model, data))
        return model.replace(
            params=torch.lerp(model.params, personal.params, alpha),
            buffers=torch.lerp(model.buffers, personal.buffers, alpha),
        )

    def join(self, client: Client[State], received: Weights) -> Weights | Predictor:
        """v starts at w, as before round 1."""
        client.state.personal = received
        return super().join(client, received)

    def _model_and_alpha(self, client: Client[State]) -> tuple[Weights, float]:
        """v and alpha after the client's last training."""
        state = client.state
        return state.personal or client.initial, self.options.alpha if state.alpha is None else state.alpha


class AlphaMixture:
    """A client's v and alpha, trained together with its copy of the global model."""

    def __init__(self, client: Client, options: APFL.Options, own: Companion, alpha: float) -> None:
        self.own, self.options = own, options
        self.alpha = torch.tensor(alpha, dtype=torch.float64, device=client.initial.params.device)
        self.slope = torch.zeros_like(self.alpha)
        self.rate, self.due = client.rate(options.alpha_lr), options.alpha_update != "off"

    def step(self, batch: Any) -> None:
        """Steps b, d and e of a batch; both gradients use the old v and alpha."""
        if self.options.mixing == "parameters":
            self.own.step(batch, at=self._mixture_of, edit=self._through_mixture)
        else:
            self.own.step(batch, loss=self._loss_of_mixed_scores)
        if self.due:
            self.alpha = (self.alpha - self.rate * (self.slope + self.options.alpha_decay * self.alpha)).clamp(0, 1)
            self.due = self.options.alpha_update == "step"

    def _mixture_of(self, v: Tensor) -> Tensor:
        return torch.lerp(self.own.other.params, v, self.alpha.to(v.dtype))

    def _through_mixture(self, g: Tensor, v: Tensor) -> None:
        """The gradient by v is alpha times that at the mixed vector."""
        if self.due:
            self.slope = g.double() @ (v - self.own.other.params).double()
        g.mul_(self.alpha.to(g.dtype))

    def _loss_of_mixed_scores(self, net: LightningModule, batch: Any) -> Tensor:
        """Cross-entropy of the mixed class scores, with the same dropout masks in both models."""
        x, y = batch
        alpha = self.alpha.clone().requires_grad_()
        others = self.own.scores_of_other(x)
        loss = F.cross_entropy(alpha.to(others.dtype) * outputs_of(net(x)) + (1 - alpha).to(others.dtype) * others, y)
        if self.due:
            (self.slope,) = torch.autograd.grad(loss, alpha, retain_graph=True)
        return loss
