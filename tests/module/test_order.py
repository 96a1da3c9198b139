"""Layers in the order in which a forward pass enters them."""

import pytest
import torch
from torch import nn

from fedbench.module.order import layer_order


class Backwards(nn.Module):
    """Registers its layers in another order than it uses them; one is used by its numbers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)
        self.first = nn.Linear(2, 2)
        self.by_hand = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)) @ self.by_hand.weight


def test_the_pass_decides_and_what_it_does_not_enter_follows_what_is_around_it():
    model = nn.Sequential(Backwards(), nn.ReLU())
    order = layer_order(model, torch.zeros(1, 2))
    assert order == ["", "0", "0.by_hand", "0.first", "0.last", "1"]


def test_nothing_stays_behind_where_the_pass_fails():
    model = Backwards()
    with pytest.raises(RuntimeError):
        layer_order(model, torch.zeros(1, 3))
    assert not any(child._forward_pre_hooks for child in model.modules())


def test_compiled_layers_that_have_worked_before_are_entered_too():
    found = []
    for compiled in (False, True):
        model, x = nn.Sequential(Backwards(), nn.ReLU()), torch.zeros(1, 2)
        if compiled:
            model[0].compile(backend="eager")
        model(x)
        found.append(layer_order(model, x))
    assert found[0] == found[1]
