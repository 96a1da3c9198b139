"""What the built-in networks have in common."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.errors import ConfigError
from fedbench.tasks import Task, load

Grey = Literal["repeat", "native"]
"""repeat: a one-channel image enters a three-channel network three times; native: a first layer with one channel."""


class Network(LightningModule):
    """A body that makes features [b, width] and a head, the last Linear layer, that makes outputs [b, classes].

    task: gives the loss. channels_last: the devices on which images stored channels last are faster, by measurement: on
    a CPU plain convolutions gain a fifth, residual nets lose a seventh. images_only: samples of another shape are
    refused. auto_options: what the options are, unless given, where `auto` takes this network.
    """

    body: nn.Module
    head: nn.Linear
    task: Task = load("classification")
    channels_last: ClassVar[tuple[str, ...]] = ("cuda",)
    images_only: ClassVar[bool] = False
    auto_options: ClassVar[dict[str, Any]] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = self.task.loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD with the default rate, momentum and decay of a run."""
        train = TrainConfig()
        return torch.optim.SGD(self.parameters(), lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay)


class Repeat(nn.Module):
    """A one-channel image as several equal channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, self.channels, -1, -1)


def entrance(channels: int, grey: str) -> tuple[dict[str, nn.Module], int]:
    """What an image passes first, by name, and the channels that the first layer sees."""
    check_choice("grey", grey, ("repeat", "native"))
    return ({"repeat": Repeat(3)}, 3) if channels == 1 and grey == "repeat" else ({}, channels)


def check_choice(key: str, value: Any, legal: Sequence[Any]) -> None:
    """Raises ConfigError for a value that an option does not take."""
    if value not in legal or type(value) is not type(legal[0]):
        raise ConfigError(f"model.{key} = {value!r}: {' or '.join(map(str, legal))}")
