"""Vision transformers of three sizes."""

import pytest
import torch
from torch import nn

from tests.models.making import built, count, meta


@pytest.mark.parametrize(
    ("size", "side", "parameters", "width"),
    [
        ("tiny", 224, 5_526_346, 192),
        ("tiny", 256, 5_537_866, 192),
        ("small", 224, 21_669_514, 384),
        ("small", 256, 21_692_554, 384),
        ("base", 224, 85_806_346, 768),
        ("base", 256, 85_852_426, 768),
    ],
)
def test_vit(size, side, parameters, width):
    module = meta("vit", (3, side, side), size=size).eval()
    assert count(module) == parameters
    assert count(module.head) == (width + 1) * 10
    assert module(torch.zeros(2, 3, side, side, device="meta")).shape == (2, 10)
    assert not any(m.p for m in module.modules() if isinstance(m, nn.Dropout))


def test_vit_is_small_unless_asked():
    assert count(meta("vit", (3, 224, 224))) == 21_669_514


def test_vit_starts_as_torchvisions_with_a_head_that_lets_gradients_pass():
    module = built(0, "vit")
    assert module.head.weight.std() > 0
    assert module.body.transformer.conv_proj.bias.abs().sum() == 0
    native = built(0, "vit", input_shape=(1, 32, 32), grey="native").body.transformer.conv_proj.weight
    assert native.shape == (192, 1, 16, 16)
    assert native.std().item() == pytest.approx(1 / 16, rel=0.1)
