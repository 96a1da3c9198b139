"""Squared gradients of single samples: the short way by layers, and who takes it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.engine import fisher
from fedbench.engine.fisher import SquaredGradients

IMAGE, TOKENS = (3, 7, 6), (4, 3)


class Called(nn.Module):
    """A module that computes what a function of it says."""

    def __init__(self, forward, **parts) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(4))


SHORT = {
    "linear": (lambda: flat(nn.Flatten(), nn.Linear(126, 5, bias=False), nn.Tanh()), IMAGE),
    "tokens": (lambda: flat(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2, bias=False)), TOKENS),
    "strides": (lambda: flat(nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(2, 1)), nn.ReLU()), IMAGE),
    "dilation": (lambda: flat(nn.Conv2d(3, 5, 2, dilation=(1, 3), bias=False), nn.ReLU()), IMAGE),
    "in place": (lambda: flat(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Conv2d(5, 2, 3)), IMAGE),
    "norm": (lambda: flat(nn.Flatten(), nn.Linear(126, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True)), IMAGE),
    "unused": (lambda: Called(lambda m, x: m.used(x), used=flat(nn.Flatten()), spare=nn.Linear(2, 2)), IMAGE),
}
LONG = {
    "groups": (lambda: flat(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU()), IMAGE),
    "same": (lambda: flat(nn.Conv2d(3, 6, 3, padding="same"), nn.ReLU()), IMAGE),
    "reflected": (lambda: flat(nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect"), nn.ReLU()), IMAGE),
    "layer norm": (lambda: flat(nn.Linear(3, 5), nn.LayerNorm(5)), TOKENS),
    "twice": (lambda: Called(lambda m, x: m.out(m.a(m.a(x).tanh())), a=nn.Linear(3, 3), out=flat()), TOKENS),
    "tied": (lambda: Called(lambda m, x: m.out(m.b(m.a(x).tanh())), **tied(), out=flat()), TOKENS),
    "by function": (
        lambda: Called(lambda m, x: m.out(F.linear(m.a(x), m.a.weight)), a=nn.Linear(3, 3), out=flat()),
        TOKENS,
    ),
    "free": (lambda: Called(lambda m, x: m.out(x * m.scale), scale=nn.Parameter(torch.ones(3)), out=flat()), TOKENS),
    "by keyword": (lambda: Called(lambda m, x: m.out(m.a(input=x)), a=nn.Linear(3, 3), out=flat()), TOKENS),
    "all at once": (lambda: Called(lambda m, x: m.out(x - x.mean(0)), out=flat()), TOKENS),
}


def tied() -> dict[str, nn.Module]:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return {"a": first, "b": second}


def made(build, shape, dtype=torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(3)
    module = build().to(dtype)
    x, y = torch.randn(6, *shape, dtype=dtype), torch.tensor([0, 1, 2, 3, 0, 1])
    module(x)  # lazy layers, and statistics that are not those of a fresh BatchNorm
    return module.eval(), x, y


def by_hand(module: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """With a backward pass for every sample."""
    names = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in names]
    for i in range(len(x)):
        loss = F.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        for kept, g in zip(total, torch.autograd.grad(loss, names, allow_unused=True), strict=True):
            kept += 0 if g is None else g**2
    return total


def squares(module: nn.Module, x: Tensor) -> SquaredGradients:
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    like = torch.randn_like(x[:2]), torch.zeros(len(x[:2]), dtype=torch.int64)
    return SquaredGradients(module, names, F.cross_entropy, like)


@pytest.mark.parametrize("case", [*SHORT, *LONG])
def test_every_module_gives_the_sums_of_single_samples(case):
    module, x, y = made(*(SHORT | LONG)[case])
    found = squares(module, x)
    assert (found.layers is not None) == (case in SHORT)
    if case == "all at once":  # by definition a sample is alone
        return
    for sums, expected in zip(found(x, y), by_hand(module, x, y), strict=True):
        torch.testing.assert_close(sums, expected)


def test_frozen_parameters_have_no_sums():
    module, x, y = made(*SHORT["in place"])
    for p in [*module[0].parameters(), module[3].bias]:
        p.requires_grad_(False)
    found = squares(module, x)
    assert found.layers is not None
    expected = by_hand(module, x, y)
    assert len(expected) == 5
    for sums, one in zip(found(x, y), expected, strict=True):
        torch.testing.assert_close(sums, one)


def test_sums_are_in_double_precision():
    module, x, y = made(*SHORT["strides"], dtype=torch.float32)
    for sums, single in zip(squares(module, x)(x, y), by_hand(module.double(), x.double(), y), strict=True):
        assert sums.dtype == torch.float64
        torch.testing.assert_close(sums, single, rtol=1e-4, atol=1e-9)


def test_a_wrong_rule_is_not_used(monkeypatch):
    module, x, _ = made(*SHORT["strides"])
    monkeypatch.setitem(fisher.LAYER_RULES, nn.Conv2d, lambda *a: [2 * part for part in fisher.of_convolution(*a)])
    assert squares(module, x).layers is None


def test_a_module_may_take_another_way_for_other_data():
    def twice_for_some(module: nn.Module, x: Tensor) -> Tensor:
        y = module.a(x).tanh()
        return module.out(module.a(y) if float(x.detach().max()) > 50 else y)

    module, x, y = made(lambda: Called(twice_for_some, a=nn.Linear(3, 3), out=flat()), TOKENS)
    found = squares(module, x)
    assert found.layers is not None
    x[:, 0, 0] += 100
    for sums, expected in zip(found(x, y), by_hand(module, x, y), strict=True):
        torch.testing.assert_close(sums, expected)


def test_compiled_layers_that_have_worked_before_go_the_short_way():
    module, x, y = made(*SHORT["norm"])
    module.compile(backend="eager")
    module(x[:2])
    found = squares(module, x)
    assert found.layers is not None
    for sums, expected in zip(found(x, y), by_hand(module, x, y), strict=True):
        torch.testing.assert_close(sums, expected)
