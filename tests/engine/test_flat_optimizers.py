"""SGD and Adam by the functions behind the optimisers of torch."""

import pytest
import torch
from torch import nn

from fedbench.engine.flat_optimizers import FLAT_KINDS


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (torch.optim.Adam, {"weight_decay": 0.1}),
        (torch.optim.Adam, {"betas": (0.5, 0.75), "eps": 0.1}),
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_flat_steps_are_those_of_torch_to_the_bit(kind, options):
    vectors = [nn.Parameter(torch.linspace(-1, 1, 50)) for _ in range(2)]
    usual, flat = kind(vectors[:1], 0.05, **options, fused=True), FLAT_KINDS[kind](vectors[1:], 0.05, **options)
    for number in range(1, 5):
        for vector, optimizer in zip(vectors, (usual, flat), strict=True):
            vector.grad = torch.sin(number * vector.detach())
            optimizer.step()
    assert torch.equal(*vectors)
    states = [optimizer.state[vector] for vector, optimizer in zip(vectors, (usual, flat), strict=True)]
    assert states[0].keys() == states[1].keys()
    assert all(states[0][name] is None or torch.equal(states[0][name], states[1][name]) for name in states[0])
