"""The base of built-in networks."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.errors import ConfigError
from fedbench.tasks import Task, load

Grey = Literal["repeat", "native"]
"""repeat: repeats one-channel images for a three-channel network; native: uses a one-channel first layer."""


class Network(LightningModule):
    """A body that computes features [b, width], and a head, the last Linear layer, that computes outputs [b, classes].

    task: gives the loss. channels_last: the devices on which the channels_last format is faster, as measured: on a CPU
    plain convolutions gain a fifth, residual networks lose a seventh. images_only: other samples are refused.
    auto_options: default options if `auto` chooses this network.
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
        """SGD with a run's default rate, momentum and decay."""
        train = TrainConfig()
        return torch.optim.SGD(self.parameters(), lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay)


class Repeat(nn.Module):
    """Repeats a one-channel image as several channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, self.channels, -1, -1)


def entrance_layers(channels: int, grey: str) -> tuple[dict[str, nn.Module], int]:
    """The modules before the first layer, by name, and that layer's input channels."""
    check_choice("grey", grey, ("repeat", "native"))
    return ({"repeat": Repeat(3)}, 3) if channels == 1 and grey == "repeat" else ({}, channels)


def check_choice(key: str, value: Any, legal: Sequence[Any]) -> None:
    """Raises ConfigError for an illegal value of an option."""
    if value not in legal or type(value) is not type(legal[0]):
        raise ConfigError(f"model.{key} = {value!r}: {' or '.join(map(str, legal))}")
