"""AlexNet with and without BatchNorm, layer by layer."""

import pytest
import torch
import torchvision
from torch import nn

from tests.models.making import count, meta


@pytest.mark.parametrize(("norm", "parameters", "norms"), [("batch", 57_063_498, 18_688), ("none", 57_044_810, 0)])
def test_alexnet(norm, parameters, norms):
    module = meta("alexnet", (3, 256, 256), norm=norm).eval()
    layers = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert count(module) == parameters
    assert sum(map(count, layers)) == sum(b.numel() for b in module.buffers() if b.is_floating_point()) == norms
    assert len(layers) == (7 if norm == "batch" else 0)
    assert count(module.head) == 40_970
    assert module(torch.zeros(2, 3, 256, 256, device="meta")).shape == (2, 10)


def test_alexnet_layer_by_layer():
    module, seen = meta("alexnet", (3, 256, 256)).eval(), {}
    for name, layer in module.body.named_children():
        layer.register_forward_hook(lambda _, __, out, name=name: seen.update({name: tuple(out.shape[1:])}))
    module(torch.zeros(1, 3, 256, 256, device="meta"))
    sides = {name: shape for name, shape in seen.items() if name.startswith(("conv", "pool"))}
    assert sides == {
        "conv1": (64, 63, 63),
        "pool1": (64, 31, 31),
        "conv2": (192, 31, 31),
        "pool2": (192, 15, 15),
        "conv3": (384, 15, 15),
        "conv4": (256, 15, 15),
        "conv5": (256, 15, 15),
        "pool5": (256, 7, 7),
    }
    assert (seen["flatten"], seen["fc1"], seen["fc2"]) == ((9216,), (4096,), (4096,))
    sizes = {name: count(layer) for name, layer in module.body.named_children() if count(layer)}
    assert list(sizes.items()) == [
        ("conv1", 23_296),
        ("bn1", 128),
        ("conv2", 307_392),
        ("bn2", 384),
        ("conv3", 663_936),
        ("bn3", 768),
        ("conv4", 884_992),
        ("bn4", 512),
        ("conv5", 590_080),
        ("bn5", 512),
        ("fc1", 37_752_832),
        ("bn_fc1", 8_192),
        ("fc2", 16_781_312),
        ("bn_fc2", 8_192),
    ]


def test_alexnet_without_norm_is_torchvisions_without_dropout():
    ours, theirs = meta("alexnet", (3, 64, 64), norm="none"), torchvision.models.alexnet
    with torch.device("meta"):
        shapes = [p.shape for p in theirs(num_classes=10).parameters()]
    assert [p.shape for p in ours.parameters()] == shapes
