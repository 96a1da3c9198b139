"""Perceptrons of any depth."""

import pytest
import torch

from tests.models.making import GREY, count, meta


@pytest.mark.parametrize(
    ("options", "shape", "classes", "parameters"),
    [({}, GREY, 10, 199_210), ({"hidden": 64}, (1, 8, 8), 10, 4_810), ({"hidden": [5]}, (1, 2, 3), 3, 53)],
)
def test_mlp(options, shape, classes, parameters):
    module = meta("mlp", shape, classes, **options)
    assert count(module) == parameters
    assert module(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


def test_mlp_without_hidden_layers_is_linear():
    assert count(meta("mlp", (1, 8, 8), hidden=[])) == 650
