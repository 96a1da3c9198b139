"""Models, built small or without memory."""

import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench import models
from fedbench.errors import ConfigError

RGB, GREY = (3, 32, 32), (1, 28, 28)


SMALLEST: dict[str, dict] = {
    "alexnet": {"input_shape": (3, 63, 63)},
    "vit": {"input_shape": (3, 32, 32), "size": "tiny"},
}
"""What a model needs to be quick in a test; others take 32x32."""


def meta(name: str, shape: tuple[int, int, int] = RGB, classes: int = 10, **options) -> LightningModule:
    """Without memory for the weights."""
    with torch.device("meta"):
        return models.build(name, shape, classes, **options)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def built(seed: int, name: str, **options) -> LightningModule:
    torch.manual_seed(seed)
    return models.build(name, **SMALLEST.get(name, {}) | options)


def refused(*arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        models.build(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
