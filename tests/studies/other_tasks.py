"""Data, networks and a task of a user's, for tasks other than classification."""

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.tasks import Metric, Task

SIZE, LONG, VOCABULARY = 96, 6, 5


def draws(train: bool) -> torch.Generator:
    return torch.Generator().manual_seed(int(train))


def tokens(train: bool = True) -> list[dict[str, Any]]:
    """Sequences that count upwards, and their writers; the last positions do not count."""
    starts = torch.randint(0, VOCABULARY, (SIZE, 1), generator=draws(train))
    rows = (starts + torch.arange(LONG + 1)) % VOCABULARY
    targets = rows[:, 1:].clone()
    targets[:, -2:] = -100
    return [{"x": x, "y": y, "user": i % 3} for i, (x, y) in enumerate(zip(rows[:, :-1], targets, strict=True))]


def unshifted(train: bool = True) -> list[tuple[Tensor, Tensor]]:
    return [(item["x"], item["x"]) for item in tokens(train)]


def masks(train: bool = True) -> list[tuple[Tensor, Tensor]]:
    """Images whose bright pixels are of class 1; the first row does not count."""
    images = torch.rand(SIZE, 1, 4, 4, generator=draws(train))
    targets = (images[:, 0] > 0.5).to(torch.uint8)
    targets[:, 0] = 255
    return list(zip(images, targets, strict=True))


def halves(train: bool = True) -> tuple[Tensor, Tensor]:
    """Rows of numbers, and whether the first is above 0."""
    rows = torch.randn(SIZE, 3, generator=draws(train))
    return rows, (rows[:, 0] > 0).long()


def noise(train: bool = True) -> tuple[Tensor, Tensor]:
    """Rows of numbers, and the first one with noise."""
    rows = torch.randn(SIZE, 3, generator=draws(train))
    return rows, rows[:, 0] + torch.randn(SIZE, generator=draws(not train))


class Own(LightningModule):
    """A module with its own optimiser and a loss of its own."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.05)


class TokenNet(Own):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(classes, 8), nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return self.loss(self(batch["x"]), batch["y"])

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.transpose(1, 2), y)


class MaskNet(Own):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(1, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, y, ignore_index=255)


class OneLogit(Own):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).squeeze(1)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs, y.float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("own_loss", self.loss(self(batch[0]), batch[1]))


class Pinball(Task):
    """The upper quartile of a number."""

    metrics = (Metric("pinball", "pinball loss", higher=False),)
    loss_metric = "pinball"

    def loss(self, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        gap = targets - outputs.view_as(targets)
        losses = torch.maximum(0.75 * gap, -0.25 * gap)
        return losses if reduction == "none" else getattr(losses, reduction)()


TASK = Pinball()


def half_score(outputs: Any, targets: Any) -> float:
    """A metric of the user's."""
    return float(targets.mean())
