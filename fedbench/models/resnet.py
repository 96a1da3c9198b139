"""Residual networks of basic blocks: depths 8, 10 and 18, each with either of two stems."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from torch import nn
from torchvision.models import ResNet18_Weights
from torchvision.models.resnet import BasicBlock

from fedbench.models import pretrained as published
from fedbench.models.network import Grey, Network, check_choice, entrance_layers

WIDTHS = (64, 128, 256, 512)
NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "group": partial(nn.GroupNorm, 32)}


class ResNet(Network):
    """Stem, stages of basic blocks with widths 64, 128, 256, 512, global average pooling, head.

    stem: imagenet (7x7 stride 2, 3x3 max pooling stride 2) or cifar (3x3 stride 1, no pooling).
    grey: repeat (one-channel images are repeated three times) or native (a one-channel stem).
    norm: batch (BatchNorm) or group (GroupNorm of 32 groups, Wu and He, ECCV 2018: samples do not affect each other).
    Images of any size.
    Source: He et al., CVPR 2016; with the imagenet stem, torchvision's layers and initial weights.
    """

    images_only = True
    blocks: ClassVar[tuple[int, ...]]
    """Number of blocks per stage."""

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (3, 32, 32),
        classes: int = 10,
        stem: Literal["imagenet", "cifar"] = "imagenet",
        grey: Grey = "repeat",
        norm: Literal["batch", "group"] = "batch",
    ) -> None:
        super().__init__()
        check_choice("stem", stem, ("imagenet", "cifar"))
        check_choice("norm", norm, tuple(NORMS))
        layers, channels = entrance_layers(input_shape[0], grey)
        layers |= stem_layers(channels, stem, NORMS[norm])
        for number, count in enumerate(self.blocks):
            layers[f"stage{number + 1}"] = make_stage(WIDTHS[max(0, number - 1)], WIDTHS[number], count, NORMS[norm])
        layers |= {"average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
        self.body = nn.Sequential(OrderedDict(layers))
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
    """Four stages of two blocks, 512 features.

    pretrained: ImageNet weights in all layers but the head; with the imagenet stem and BatchNorm only.
    """

    blocks = (2, 2, 2, 2)

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (3, 32, 32),
        classes: int = 10,
        stem: Literal["imagenet", "cifar"] = "imagenet",
        grey: Grey = "repeat",
        pretrained: bool = False,
        norm: Literal["batch", "group"] = "batch",
    ) -> None:
        check_choice("pretrained", pretrained, (True, False))
        if pretrained:
            published.check_fits(
                entrance_layers(input_shape[0], grey)[1], stem=(stem, "imagenet"), norm=(norm, "batch")
            )
        super().__init__(input_shape, classes, stem, grey, norm)
        if pretrained:
            published.load_pretrained(self.body, ResNet18_Weights.IMAGENET1K_V1, resnet_name)


def resnet_name(name: str) -> str | None:
    """Our name of a torchvision tensor; None for its head."""
    return None if name.startswith("fc.") else name.replace("layer", "stage")


def stem_layers(channels: int, stem: str, norm: Callable[[int], nn.Module]) -> dict[str, nn.Module]:
    large = stem == "imagenet"
    conv = nn.Conv2d(channels, 64, 7, 2, 3, bias=False) if large else nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    layers: dict[str, nn.Module] = {"conv1": conv, "bn1": norm(64), "relu": nn.ReLU()}
    return layers | {"pool": nn.MaxPool2d(3, 2, 1)} if large else layers


def make_stage(before: int, width: int, blocks: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    """Blocks of one width; the first halves the map, except in the stage with the stem's width."""
    stride = 1 if before == width else 2
    shortcut = None
    if before != width:
        shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), norm(width))
    first = BasicBlock(before, width, stride, shortcut, norm_layer=norm)
    return nn.Sequential(first, *(BasicBlock(width, width, norm_layer=norm) for _ in range(blocks - 1)))
