"""Residual networks: counts, parts and numbers as published."""

import pytest
import torch
import torchvision
from torch import nn

from tests.models.making import GREY, RGB, built, count, meta

RESNETS = [
    ("resnet8", RGB, 10, 1_235_274, 1_227_594),
    ("resnet10", RGB, 10, 4_910_922, 4_903_242),
    ("resnet18", RGB, 10, 11_181_642, 11_173_962),
    ("resnet8", RGB, 100, 1_258_404, 1_250_724),
    ("resnet10", RGB, 100, 4_957_092, 4_949_412),
    ("resnet18", RGB, 100, 11_227_812, 11_220_132),
    ("resnet8", (3, 64, 64), 200, 1_284_104, 1_276_424),
    ("resnet10", (3, 64, 64), 200, 5_008_392, 5_000_712),
    ("resnet18", (3, 64, 64), 200, 11_279_112, 11_271_432),
    ("resnet8", GREY, 10, 1_229_002, 1_226_442),
    ("resnet10", GREY, 10, 4_904_650, 4_902_090),
    ("resnet18", GREY, 10, 11_175_370, 11_172_810),
    ("resnet18", GREY, 62, 11_202_046, 11_199_486),
    ("resnet18", GREY, 11, 11_175_883, 11_173_323),
]


@pytest.mark.parametrize(("name", "shape", "classes", "imagenet", "cifar"), RESNETS)
def test_resnets(name, shape, classes, imagenet, cifar):
    for stem, parameters in (("imagenet", imagenet), ("cifar", cifar)):
        module = meta(name, shape, classes, stem=stem, grey="native").eval()
        assert count(module) == parameters
        assert module(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


@pytest.mark.parametrize(
    ("name", "tensors", "norms", "width"),
    [("resnet8", 29, 9, 256), ("resnet10", 38, 12, 512), ("resnet18", 62, 20, 512)],
)
def test_resnet_parts(name, tensors, norms, width):
    module = meta(name)
    layers = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(list(module.parameters())) == tensors
    assert len(layers) == norms
    assert sum(map(count, layers)) == {9: 2688, 12: 5760, 20: 9600}[norms]
    assert sum(b.numel() for b in module.buffers() if b.is_floating_point()) == sum(map(count, layers))
    assert count(module.head) == (width + 1) * 10


@pytest.mark.parametrize(
    ("name", "stem", "side", "last"),
    [
        ("resnet18", "imagenet", 32, 1),
        ("resnet18", "cifar", 32, 4),
        ("resnet8", "imagenet", 64, 4),
        ("resnet8", "cifar", 84, 21),
        ("resnet10", "imagenet", 84, 3),
        ("resnet10", "cifar", 64, 8),
    ],
)
def test_last_map(name, stem, side, last):
    module = meta(name, (3, side, side), stem=stem).eval()
    sizes = []
    module.body.average.register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].shape[-1]))
    module(torch.zeros(1, 3, side, side, device="meta"))
    assert sizes == [last]


def test_resnet18_is_torchvisions():
    ours = built(3, "resnet18")
    torch.manual_seed(3)
    theirs = torchvision.models.resnet18(num_classes=10)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    x = torch.randn(4, *RGB)
    assert torch.equal(ours(x), theirs(x))


def test_with_groupnorm_no_sample_affects_another_and_no_parameter_is_added():
    for name in ("resnet8", "resnet18"):
        assert count(meta(name, norm="group")) == count(meta(name))
    module = built(0, "resnet8", norm="group").train()
    assert not [*module.buffers()]
    x = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(module(x)[:1], module(x[:1]), rtol=0, atol=1e-5)
