"""FedMosaic's trust: how much a client heeds the labels that all voted for, and how sure it is of its own votes."""

from math import exp, log
from typing import Any

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.losses import task_loss

TRACED = ("lambda", "loss_private", "loss_public")


def trust(private: float, public: float, eps: float) -> float:
    """lambda in [0, e): 1 where both losses are equal, less where the public labels are the harder ones (eq. 3)."""
    return exp(-(public - private) / (private + eps))


class RoundMeans:
    """Means over a round of lambda and of the two losses that it comes from. sums: float64 `[3]`; count: `[]`."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, lam: float, private: float, public: float) -> None:
        self.sums.add_(self.sums.new_tensor([lam, private, public]))
        self.count.add_(1)

    def traces(self) -> dict[str, float]:
        """By name; not a number where there was no lambda."""
        return dict(zip(TRACED, (self.sums / self.count).tolist(), strict=True))


def step_trusted_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """Both losses with lambda computed from them, for this step's batches and without gradient.

    s.eps: float64 `[]`; s.sums, s.count: of the round's means, to be added to.
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
    """log C - H of the predictions `[U, C]`, float64 `[U]`: 0 for a uniform one, log C for a sure one."""
    logs = logits.to(torch.float64).log_softmax(1)
    return log(logits.shape[1]) + (logs.exp() * logs).sum(1)


def class_shares(labels: Tensor, own: Tensor, classes: int) -> Tensor:
    """For each label `[U]` its share among a client's own ones, float64."""
    return own.bincount(minlength=classes).to(torch.float64)[labels] / len(own)
