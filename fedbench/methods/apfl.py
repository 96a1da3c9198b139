"""APFL: adaptive personalised federated learning (Deng, Kamani, Mahdavi; preprint 2020).

Private: a personal vector v with its running statistics, and its mixing weight alpha. Up and down: the global model w,
trained as in FedAvg. v is stepped along the gradient at alpha v + (1 - alpha) w, on the same batches as w.

Where we decide:
- Parameters are mixed (Algorithm 1). The authors' code mixes class scores (`mixing=logits`) after the step of w
  (`mix_with=updated`), and adds 0.02 alpha to the gradient of alpha (`alpha_decay`). In its gradient of alpha the
  gradients of both models are mixed; ours is the derivative.
- alpha moves in the first step of a round, as in the code; the paper derives a step for every iteration.
- v starts at w, so that with the defaults no alpha can move in round 1.
- The mean is uniform (Algorithm 1). v has running statistics of its own, and a mixture mixes them.
- Two optimisers. Popular code has one, and steps w twice; or it trains v on its own loss and folds w into v.

Longer than other method files because two models are trained in step and the variants of paper and code differ inside.
"""

from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedbench.learner import seeds
from fedbench.learner.lane import Lane
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Upload


class APFL(Method):
    """The personal model is alpha v + (1 - alpha) w, with alpha learned."""

    class Options(Method.Options):
        weighting: Literal["uniform", "samples"] = Field(
            "uniform", description="weight of a client in the mean: the same for all, or its training images"
        )
        alpha: float = Field(0.5, ge=0, le=1, description="first weight of the personal vector in the mixture")
        alpha_update: Literal["round", "step", "off"] = Field(
            "round", description="when alpha is learned: in a round's first step, in every step, or never"
        )
        alpha_lr: float | None = Field(None, ge=0, description="learning rate of alpha; none: the run's")
        alpha_decay: float = Field(0.0, ge=0, description="decay of alpha, added to its gradient; 0.02 in popular code")
        mixing: Literal["parameters", "logits"] = Field(
            "parameters", description="what is mixed: parameters (Algorithm 1), or class scores (the authors' code)"
        )
        mix_with: Literal["previous", "updated"] = Field(
            "previous", description="the global copy in a step's mixture: before its step, or after it (the code)"
        )

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        mixture = Mixture(client, self.options, *self._own(client))
        when = "before_step" if self.options.mix_with == "previous" else "after_step"
        around: dict[str, Any] = {when: mixture.step}
        upload = self.upload(client, client.learner.fit(received, client.train, memory=client.memory("fit"), **around))
        own, alpha = mixture.lane.finish(), float(mixture.alpha)
        client.state.update(personal=vars(own), alpha=alpha)
        upload.traces["alpha"] = alpha
        assert isinstance(client.fitted, Weights)
        client.fitted = self._mixed(client, client.fitted)
        return upload

    def personal(self, client: Client, download: Message) -> Predictor:
        return self._mixed(client, self.receive(client, download))

    def _own(self, client: Client) -> tuple[Weights, float]:
        """v and alpha as the client's last training left them."""
        if "personal" not in client.state:
            return client.initial, self.options.alpha
        return Weights(**client.state["personal"]), client.state["alpha"]

    def _mixed(self, client: Client, common: Weights) -> Predictor:
        """The predictor to evaluate: one model, or the mixture of two models' class scores."""
        own, alpha = self._own(client)
        if self.options.mixing == "logits":
            logits = client.learner.logits
            return lambda data: alpha * logits(own, data) + (1 - alpha) * logits(common, data)
        return common.replace(
            params=torch.lerp(common.params, own.params, alpha),
            buffers=torch.lerp(common.buffers, own.buffers, alpha),
        )


class Mixture:
    """A client's v and alpha, trained beside its copy of the global model."""

    def __init__(self, client: Client, options: APFL.Options, own: Weights, alpha: float) -> None:
        self.learner, self.options = client.learner, options
        self.lane = Lane(client.learner, own, client.train, "fit", client.memory("personal"))
        self.alpha = torch.tensor(alpha, dtype=torch.float64, device=client.learner.device)
        self.slope = torch.zeros_like(self.alpha)
        rate = client.learner.train.lr if options.alpha_lr is None else options.alpha_lr
        self.rate, self.due = rate * client.learner.lr_factor, options.alpha_update != "off"

    def step(self, batch: Any, optimizer: Any, state: Any) -> None:
        """Steps b, d and e of a batch; both gradients are those of the old v and alpha."""
        loss = self._loss_of_parameters if self.options.mixing == "parameters" else self._loss_of_logits
        self.lane.step(partial(loss, batch), like=optimizer)
        if self.due:
            self.alpha = (self.alpha - self.rate * (self.slope + self.options.alpha_decay * self.alpha)).clamp(0, 1)
            self.due = self.options.alpha_update == "step"

    def _loss_of_parameters(self, batch: Any, common: Weights) -> Tensor:
        """Loss at the mixed vector; its gradient there is that by v but for the factor alpha."""
        learner, own, alpha = self.learner, self.lane.present().params, self.alpha.to(self.learner.dtype)
        torch.lerp(common.params, own, alpha, out=learner.w)
        with learner.autocast():
            loss = task_loss(learner.module, batch)
        gradient = self.lane.gradient(loss)
        if self.due:
            self.slope = gradient.double() @ (own - common.params).double()
        gradient.mul_(alpha)
        learner.w.copy_(own)
        return loss

    def _loss_of_logits(self, batch: Any, common: Weights) -> Tensor:
        """Cross-entropy of the mixed class scores, with the same dropout masks in both models."""
        learner, net, own, (x, y) = self.learner, self.learner.module, self.lane.present(), batch
        alpha = self.alpha.clone().requires_grad_()
        learner.load(common)
        with torch.no_grad(), seeds.preserved_torch_stream(), learner.autocast():
            others = net(x)
        learner.load(own)
        with learner.autocast():
            loss = F.cross_entropy(alpha.to(others.dtype) * net(x) + (1 - alpha).to(others.dtype) * others, y)
        self.lane.gradient(loss)
        assert alpha.grad is not None
        self.slope = alpha.grad
        return loss
