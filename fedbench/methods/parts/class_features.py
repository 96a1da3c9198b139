"""Features by class: their means at a client and over all, what a head is mixed by, and a loss that pulls features."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.losses import task_loss_through


def class_means(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean features of each class `[C, d]`, zero rows where there is none, and the class counts `[C]`, float64."""
    member = F.one_hot(labels, classes).to(torch.float64)  # [n, C]
    counts = member.sum(0)
    return member.T @ features / counts.clamp(min=1)[:, None], counts


def head_statistics(features: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """moments: h `[C, d]`, the class means times their shares of the images; spread: V, the variance of that."""
    means, counts = class_means(features, labels, classes)
    squares, _ = class_means(features.square().sum(1, keepdim=True), labels, classes)  # [C, 1]
    shares = counts[:, None] / len(features)
    moments = shares * means
    spread = ((shares * squares).sum() - moments.square().sum()).clamp(min=0) / len(features)
    return {"moments": moments, "spread": spread}


def global_centroids(centroids: Sequence[Tensor], counts: Sequence[Tensor]) -> Tensor:
    """Means `[C, d]` of local centroids by class counts, not a number where no client has the class."""
    total = torch.zeros_like(centroids[0], dtype=torch.float64)
    images = torch.zeros_like(counts[0], dtype=torch.float64)
    for centroid, count in zip(centroids, counts, strict=True):
        total += count.to(torch.float64)[:, None] * centroid
        images += count
    return (total / images[:, None]).to(centroids[0].dtype)


def aligned_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss plus lambda times the mean squared distance of features to their class's target."""
    loss, features, _ = task_loss_through(net, batch, s.head)
    return loss + s.weight * F.mse_loss(features.flatten(1), s.targets[batch[1]])
