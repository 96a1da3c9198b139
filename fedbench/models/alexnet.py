"""AlexNet with BatchNorm, as in the field's feature-shift benchmarks, or without."""

from collections import OrderedDict
from typing import Literal

from torch import nn
from torchvision.models import AlexNet_Weights

from fedbench.errors import ConfigError
from fedbench.models import pretrained as published
from fedbench.models.network import Grey, Network, check_choice, entrance_layers

CONVOLUTIONS = (
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
)
"""Channels, kernel, stride, padding, and whether 3x3 max pooling with stride 2 follows."""
SMALLEST = 63
TORCHVISION_LAYERS = {"0": "conv1", "3": "conv2", "6": "conv3", "8": "conv4", "10": "conv5"}
"""torchvision's numbers of the convolutions; its hidden linear layers are 1 and 4."""


class AlexNet(Network):
    """Five convolutions and two hidden linear layers of 4096, each with ReLU; 6x6 average pooling between them.

    norm: batch (BatchNorm after every layer but the head, as in the FedBN benchmark, the source of FedMosaic's data) or
    none (torchvision's layers, without Dropout). grey: how one-channel images are handled. pretrained: ImageNet weights
    in all layers but the head; norm = none only. Images of at least 63x63, of any aspect ratio.
    """

    channels_last = ("cpu", "cuda")
    images_only = True

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (3, 256, 256),
        classes: int = 10,
        norm: Literal["batch", "none"] = "batch",
        grey: Grey = "repeat",
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        check_choice("norm", norm, ("batch", "none"))
        check_choice("pretrained", pretrained, (True, False))
        if min(input_shape[1:]) < SMALLEST:
            height, width = input_shape[1:]
            raise ConfigError(
                f"model alexnet needs images of {SMALLEST}x{SMALLEST} or more, these are {height}x{width}; "
                "take avgcnn, or larger images with data.size where the source has it"
            )
        layers, channels = entrance_layers(input_shape[0], grey)
        if pretrained:
            published.check_fits(channels, norm=(norm, "none"))
        for number, (width, kernel, stride, padding, pool) in enumerate(CONVOLUTIONS, 1):
            layers[f"conv{number}"] = nn.Conv2d(channels, width, kernel, stride, padding)
            layers |= activation_layers(f"{number}", nn.BatchNorm2d(width) if norm == "batch" else None)
            layers |= {f"pool{number}": nn.MaxPool2d(3, 2)} if pool else {}
            channels = width
        layers |= {"average": nn.AdaptiveAvgPool2d(6), "flatten": nn.Flatten()}
        for number, width in ((1, channels * 36), (2, 4096)):
            layers[f"fc{number}"] = nn.Linear(width, 4096)
            layers |= activation_layers(f"_fc{number}", nn.BatchNorm1d(4096) if norm == "batch" else None)
        self.body = nn.Sequential(OrderedDict(layers))
        self.head = nn.Linear(4096, classes)
        if pretrained:
            published.load_pretrained(self.body, AlexNet_Weights.IMAGENET1K_V1, alexnet_name)


def activation_layers(number: str, norm: nn.Module | None) -> dict[str, nn.Module]:
    return ({f"bn{number}": norm} if norm else {}) | {f"relu{number}": nn.ReLU()}


def alexnet_name(name: str) -> str | None:
    """Our name of a torchvision tensor; None for its head."""
    part, number, kind = name.split(".")
    if part == "features":
        return f"{TORCHVISION_LAYERS[number]}.{kind}"
    return {"1": f"fc1.{kind}", "4": f"fc2.{kind}"}.get(number)
