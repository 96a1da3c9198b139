"""Perceptrons of any depth."""

import pytest
import torch

from fedbench.errors import ConfigError
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


def test_batchnorm_stands_before_every_relu():
    module = meta("mlp", GREY, 10, hidden=[512, 512], norm="batch")
    assert count(module) == 669_706 + 4 * 512
    assert [type(layer).__name__ for layer in module.body] == ["Flatten", *["Linear", "BatchNorm1d", "ReLU"] * 2]
    assert not any(isinstance(layer, torch.nn.BatchNorm1d) for layer in meta("mlp", GREY, 10).body)


def test_another_norm_is_refused():
    with pytest.raises(ConfigError, match=r"model\.norm = 'group': batch or none"):
        meta("mlp", GREY, 10, norm="group")
