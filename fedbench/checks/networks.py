"""The network with which methods are checked."""

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn


class Awkward(LightningModule):
    """BatchNorm, Dropout, and a dictionary returned from training_step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3))
        self.classifier = nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.body(x))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("seen", loss)
        return {"loss": loss}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
