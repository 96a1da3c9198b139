"""Features of a training's batches, kept as they are trained: inputs of the classifier before each step."""

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from fedbench.engine.fit import Loss
from fedbench.engine.losses import task_loss_through


def recording(head: str | None, rows: int, batch: int, width: int, like: Tensor) -> Loss:
    """The client's own loss, which writes down what goes into `head`.

    rows, batch, width: at most so many samples in a whole training and in a batch, and features of each; like: of the
    kind of the parameters.
    """
    labels = torch.empty(rows, dtype=torch.int64, device=like.device)
    following = torch.arange(batch, device=like.device)  # the rows of the next batch
    return Loss(recorded_loss, head=head, features=like.new_empty(rows, width), labels=labels, rows=following)


def recorded_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The batch's features and labels are written behind those of the batches before."""
    loss, features, _ = task_loss_through(net, batch, s.head)
    rows = s.rows[: len(features)]
    s.features.index_copy_(0, rows, features.detach().flatten(1).to(s.features.dtype))
    s.labels.index_copy_(0, rows, batch[1])
    s.rows += len(features)
    return loss


def recorded(loss: Loss) -> tuple[Tensor, Tensor]:
    """Features `[n, d]` and labels `[n]` that a `recording` loss has written, in the order of the training."""
    rows = int(loss.needs["rows"][0])
    return loss.needs["features"][:rows], loss.needs["labels"][:rows]
