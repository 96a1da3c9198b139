"""The field's standard four-layer network, with 5x5 convolutions and no padding."""

from collections import OrderedDict

from torch import nn

from fedbench.errors import ConfigError
from fedbench.models.network import Network


class AvgCnn(Network):
    """Two 5x5 convolutions (32 and 64 channels, no padding), each with ReLU and 2x2 max pooling; 512 features.

    Source: FedOBP, table 3 (its parameter counts show that there is no padding).
    """

    channels_last = ("cpu",)
    images_only = True

    def __init__(self, input_shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10) -> None:
        super().__init__()
        channels, height, width = input_shape
        if min(height, width) < 16:
            raise ConfigError(
                f"model avgcnn needs images of 16x16 or more, these are {height}x{width}; model mlp takes any"
            )
        self.body = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 32, 5),
                relu1=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(32, 64, 5),
                relu2=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                fc1=nn.Linear(64 * pooled_side(height) * pooled_side(width), 512),
                relu3=nn.ReLU(),
            )
        )
        self.head = nn.Linear(512, classes)


def pooled_side(side: int) -> int:
    """Side length of the map that fc1 receives."""
    return ((side - 4) // 2 - 4) // 2
