"""Steps of the built-in optimisers on rows are torch.optim's."""

import pytest
import torch
from torch import nn

from fedbench.engine.row_optimizers import STATES, RowOptimizer

KINDS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", KINDS)
def test_a_row_moves_as_its_parameters_would(name, weight_decay, momentum):
    draw = torch.Generator().manual_seed(0)
    w, gradients = torch.randn(3, 7, generator=draw).double(), torch.randn(4, 3, 7, generator=draw).double()
    states = {own: torch.zeros(3, 7).double() if vector else torch.zeros(3) for own, vector in STATES[name].items()}
    alone = [nn.Parameter(row.clone()) for row in w]
    more = {"momentum": momentum} if name == "sgd" else {}
    optimizers = [KINDS[name]([row], lr=0.1, weight_decay=weight_decay, **more) for row in alone]
    rate, own_kind = torch.tensor(0.1, dtype=torch.float64), RowOptimizer(name, momentum, weight_decay)
    for g in gradients:
        own_kind.step(w, g.clone(), states, rate)
        for row, own, optimizer in zip(alone, g, optimizers, strict=True):
            row.grad = own.clone()
            optimizer.step()
    torch.testing.assert_close(w, torch.stack([*alone]).detach(), rtol=0, atol=1e-12)
    if name != "sgd" or momentum:
        for own in STATES[name]:
            kept = [optimizer.state[row][own] for row, optimizer in zip(alone, optimizers, strict=True)]
            torch.testing.assert_close(states[own].double(), torch.stack(kept).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_one_row_alone_is_one_of_several(name):
    w, g = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0)).double()
    states = {own: torch.zeros(3, 7).double() if vector else torch.zeros(3) for own, vector in STATES[name].items()}
    row, one = w[1].clone(), {own: value[1].clone() for own, value in states.items()}
    RowOptimizer(name, 0.9, 0.01).step(w, g.clone(), states, 0.1)
    RowOptimizer(name, 0.9, 0.01).step(row, g[1].clone(), one, 0.1)
    torch.testing.assert_close(row, w[1], rtol=0, atol=1e-15)
