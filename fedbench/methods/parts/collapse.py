"""Neural collapse: how far a linear classifier is from it, a step towards it, and a loss that asks for it."""

from math import sqrt
from operator import attrgetter
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.losses import task_loss, task_loss_through


def collapse_distance(weight: Tensor, present: Tensor) -> Tensor:
    """D: how far the normalised W W' of a head `[m, H]` is from a simplex frame of the classes present, bool `[m]`.

    0, with a gradient of 0, where W W' is 0 or D is no more than rounding.
    """
    classes, some = len(weight), present.to(weight.dtype)
    gram = weight @ weight.T  # [m, m]
    size = gram.norm()
    frame = torch.eye(classes, dtype=weight.dtype, device=weight.device) - 1 / classes
    target = frame * torch.outer(some, some) / sqrt(classes - 1)
    distance = (gram / torch.where(size > 0, size, 1) - target).norm()
    defined = (size > 0) & (distance > 8 * torch.finfo(weight.dtype).eps)
    return torch.where(defined, distance, torch.zeros_like(distance))


def collapse_step(weight: Tensor, present: Tensor, rate: float) -> Tensor:
    """One gradient step of a head `[m, H]` towards collapse."""
    with torch.enable_grad():
        weight = weight.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(collapse_distance(weight, present), weight)
    return weight.detach() - rate * gradient


def as_rows(head: Tensor, present: Tensor) -> Tensor:
    """The weight of a head as a matrix `[m, H]`, float64."""
    return head.view(len(present), -1).to(torch.float64)


def regularised_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss, the head's distance to collapse, its squared norm, and that of what goes into it.

    s.weight: name of the head's weight; s.head: the head's name, or none for a loss without features.
    """
    loss, features, _ = (task_loss(net, batch), None, None) if s.head is None else task_loss_through(net, batch, s.head)
    with torch.autocast(loss.device.type, enabled=False):
        w = attrgetter(s.weight)(net)
        loss = loss + s.lambda_1 * collapse_distance(w, s.present) + s.lambda_2 * w.square().sum()
        return loss if features is None else loss + s.lambda_3 * feature_penalty(features.to(w), s.feature_norm)


def feature_penalty(features: Tensor, norm: str) -> Tensor:
    """Squared norms of a batch of features, their sum or mean over the batch."""
    total = features.square().sum()
    return total / len(features) if norm == "mean" else total
