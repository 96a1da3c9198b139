"""What all built-in models share: channels, sizes, the head, the training step."""

import warnings

import pytest
import torch
from torch import nn

from fedbench import models
from tests.models.making import GREY, RGB, SMALLEST, built, count, meta


@pytest.mark.parametrize("name", models.MODELS.names())
def test_the_head_comes_last_and_features_are_what_it_sees(name):
    module = built(0, name).eval()
    x = torch.randn(2, *SMALLEST.get(name, {}).get("input_shape", RGB))
    assert isinstance(module.head, nn.Linear)
    assert [n for n, _ in module.named_parameters()][-2:] == ["head.weight", "head.bias"]
    assert torch.equal(module(x), module.head(module.body(x)))


def test_order_of_parameters():
    names = [name for name, _ in meta("avgcnn").named_parameters()]
    assert names[::2] == ["body.conv1.weight", "body.conv2.weight", "body.fc1.weight", "head.weight"]
    block = [name.split("1.0.", 1)[1] for name, _ in meta("resnet8").named_parameters() if "stage1.0" in name]
    assert block == ["conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"]


def test_grey_images_are_repeated_unless_native_is_asked_for():
    repeat = built(0, "resnet8", input_shape=GREY)
    assert count(repeat) == 1_235_274
    colour = built(0, "resnet8", input_shape=(3, 28, 28))
    x = torch.randn(2, *GREY)
    assert torch.equal(repeat(x), colour(x.repeat(1, 3, 1, 1)))
    assert count(meta("resnet8", GREY, grey="native")) == 1_229_002


@pytest.mark.parametrize(
    ("name", "options", "repeated", "native"),
    [
        ("alexnet", {}, 57_063_498, 57_048_010),
        ("vit", {"size": "tiny"}, 5_526_346, 5_428_042),
        ("resnet18", {}, 11_181_642, 11_175_370),
    ],
)
def test_one_channel_enters_three_times_or_natively(name, options, repeated, native):
    assert count(meta(name, (1, 224, 224), **options)) == repeated
    assert count(meta(name, (1, 224, 224), grey="native", **options)) == native


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (2, 3, 7), {}),
        ("avgcnn", (1, 16, 33), {}),
        ("resnet8", (3, 1, 1), {}),
        ("resnet18", (3, 37, 50), {"stem": "cifar"}),
        ("resnet10", (4, 65, 20), {}),
        ("alexnet", (1, 63, 100), {}),
        ("alexnet", (5, 64, 63), {"norm": "none"}),
        ("vit", (1, 16, 16), {"size": "tiny"}),
        ("vit", (4, 48, 48), {"size": "tiny"}),
    ],
)
def test_odd_sizes_and_channels(name, shape, options):
    assert meta(name, shape, 7, **options).eval()(torch.zeros(2, *shape, device="meta")).shape == (2, 7)


STEPS = [
    ("mlp", {}),
    ("avgcnn", {}),
    ("resnet8", {}),
    ("resnet10", {"stem": "cifar"}),
    ("resnet18", {}),
    ("resnet18", {"stem": "cifar"}),
    ("alexnet", {}),
    ("alexnet", {"norm": "none"}),
    ("vit", {}),
    ("vit", {"size": "small"}),
]


@pytest.mark.parametrize(("name", "options"), STEPS)
def test_every_model_takes_a_step_in_both_memory_formats(name, options):
    module = built(0, name, **options)
    shape = SMALLEST.get(name, {}).get("input_shape", RGB)
    x, y = torch.randn(4, *shape, generator=torch.Generator().manual_seed(5)), torch.tensor([0, 1, 2, 3])
    state = {key: value.clone() for key, value in module.state_dict().items()}
    after = []
    for layout in (torch.contiguous_format, torch.channels_last):
        module.load_state_dict(state)
        module.to(memory_format=layout).zero_grad()
        loss = nn.functional.cross_entropy(module(x.contiguous(memory_format=layout)), y)
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
        assert all(p.grad.abs().sum() > 0 for p in module.body.parameters() if p.ndim > 1), "all layers are trained"
        torch.optim.SGD(module.parameters(), lr=1e-3).step()
        after.append((loss.detach(), module.head.weight.detach().clone()))
    torch.testing.assert_close(after[0], after[1], rtol=1e-3, atol=1e-4)
    assert not torch.equal(after[0][1], state["head.weight"])


def test_a_training_step_and_its_optimizer():
    module = built(0, "mlp", input_shape=(1, 2, 3), classes=3, hidden=5)
    batch = torch.randn(4, 1, 2, 3), torch.tensor([0, 1, 2, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # logging has nowhere to go without a trainer
        loss = module.training_step(batch, 0)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(module(batch[0]), batch[1]))
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.01
