"""APFL's personal vector and its mixing weight, trained beside the copy of the global model."""

from typing import Any

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.companion import Companion
from fedbench.engine.losses import outputs_of
from fedbench.methods.client import Client


class AlphaMixture:
    """A client's v and alpha, trained beside its copy of the global model."""

    def __init__(self, client: Client, options: Any, own: Companion, alpha: float) -> None:
        self.own, self.options = own, options
        self.alpha = torch.tensor(alpha, dtype=torch.float64, device=client.initial.params.device)
        self.slope = torch.zeros_like(self.alpha)
        self.rate, self.due = client.rate(options.alpha_lr), options.alpha_update != "off"

    def step(self, batch: Any) -> None:
        """Steps b, d and e of a batch; both gradients are those of the old v and alpha."""
        if self.options.mixing == "parameters":
            self.own.step(batch, at=self._mixed, edit=self._through_mixture)
        else:
            self.own.step(batch, loss=self._loss_of_mixed_scores)
        if self.due:
            self.alpha = (self.alpha - self.rate * (self.slope + self.options.alpha_decay * self.alpha)).clamp(0, 1)
            self.due = self.options.alpha_update == "step"

    def _mixed(self, v: Tensor) -> Tensor:
        return torch.lerp(self.own.other.params, v, self.alpha.to(v.dtype))

    def _through_mixture(self, g: Tensor, v: Tensor) -> None:
        """The gradient by v is that at the mixed vector but for the factor alpha."""
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
