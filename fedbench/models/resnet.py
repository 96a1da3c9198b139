"""Residual networks of basic blocks: depths 8, 10 and 18, each with either of two stems."""

from collections import OrderedDict
from typing import ClassVar, Literal

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

from fedbench.errors import ConfigError
from fedbench.models.classifier import Classifier

WIDTHS = (64, 128, 256, 512)


class ResNet(Classifier):
    """Stem, stages of basic blocks with widths 64, 128, 256, 512, global average, head.

    stem: imagenet (7x7 stride 2, 3x3 max pooling stride 2) or cifar (3x3 stride 1, no pooling).
    grey: repeat (a one-channel image enters a three-channel stem three times) or native (a one-channel stem).
    Source: He et al., CVPR 2016; with the imagenet stem, torchvision's layers and initial weights.
    """

    blocks: ClassVar[tuple[int, ...]]
    """Blocks of each stage."""

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (3, 32, 32),
        classes: int = 10,
        stem: Literal["imagenet", "cifar"] = "imagenet",
        grey: Literal["repeat", "native"] = "repeat",
    ) -> None:
        super().__init__()
        check_choice("stem", stem, ("imagenet", "cifar"))
        check_choice("grey", grey, ("repeat", "native"))
        repeated = input_shape[0] == 1 and grey == "repeat"
        layers = stem_layers(3 if repeated else input_shape[0], stem)
        for number, count in enumerate(self.blocks):
            layers[f"stage{number + 1}"] = stage(WIDTHS[max(0, number - 1)], WIDTHS[number], count)
        layers |= {"average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
        self.body = nn.Sequential(OrderedDict({"repeat": Repeat(3)} | layers if repeated else layers))
        self.head = nn.Linear(WIDTHS[len(self.blocks) - 1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNet8(ResNet):
    """Three stages of one block, 256 features (FedCAC on CIFAR-10)."""

    blocks = (1, 1, 1)


class ResNet10(ResNet):
    """Four stages of one block, 512 features (FedCAC on CIFAR-100)."""

    blocks = (1, 1, 1, 1)


class ResNet18(ResNet):
    """Four stages of two blocks, 512 features."""

    blocks = (2, 2, 2, 2)


class Repeat(nn.Module):
    """A one-channel image as several equal channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, self.channels, -1, -1)


def stem_layers(channels: int, stem: str) -> dict[str, nn.Module]:
    large = stem == "imagenet"
    conv = nn.Conv2d(channels, 64, 7, 2, 3, bias=False) if large else nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    layers: dict[str, nn.Module] = {"conv1": conv, "bn1": nn.BatchNorm2d(64), "relu": nn.ReLU()}
    return layers | {"pool": nn.MaxPool2d(3, 2, 1)} if large else layers


def stage(before: int, width: int, blocks: int) -> nn.Sequential:
    """Blocks of one width; the first halves the map, except in the stage that keeps the width of the stem."""
    stride = 1 if before == width else 2
    shortcut = None
    if before != width:
        shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
    first = BasicBlock(before, width, stride, shortcut)
    return nn.Sequential(first, *(BasicBlock(width, width) for _ in range(blocks - 1)))


def check_choice(key: str, value: str, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise ConfigError(f"model.{key} = {value!r}: {' or '.join(legal)}")
