"""What the built-in networks have in common."""

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from fedbench.config import TrainConfig


class Classifier(LightningModule):
    """A body that makes features [b, width] and a head, the last Linear layer, that makes logits [b, classes]."""

    body: nn.Module
    head: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD with the default rate, momentum and decay of a run."""
        train = TrainConfig()
        return torch.optim.SGD(self.parameters(), lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay)
