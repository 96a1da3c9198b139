"""A multi-layer perceptron on a sample's numbers."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import ClassVar, Literal

from torch import nn

from fedbench.errors import ConfigError
from fedbench.models.network import Network, check_choice


class Mlp(Network):
    """Linear layers with ReLU between them. hidden: width of each hidden layer, or of the only one.

    norm: batch (BatchNorm before every ReLU) or none.
    """

    channels_last = ()
    auto_options: ClassVar = {"hidden": [64]}  # `auto` takes it for images too small for a convolution net

    def __init__(
        self,
        input_shape: tuple[int, ...] = (1, 28, 28),
        classes: int = 10,
        hidden: int | Sequence[int] = (200, 200),
        norm: Literal["batch", "none"] = "none",
    ) -> None:
        super().__init__()
        check_choice("norm", norm, ("batch", "none"))
        widths = [prod(input_shape), *check_widths(hidden)]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norm == "batch" else []), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)


def check_widths(hidden: int | Sequence[int]) -> list[int]:
    """Every hidden layer's width. Raises ConfigError."""
    widths = [hidden] if isinstance(hidden, int) else hidden
    if isinstance(widths, str) or not all(type(w) is int and w > 0 for w in widths):
        raise ConfigError(
            f"model.hidden = {hidden!r}: must be a positive width or a list of these, for example [200, 200]"
        )
    return list(widths)
