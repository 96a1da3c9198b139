"""Modules that a method adds to a model change what goes into the head and what comes out of it, in copies too."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from fedbench.config import TrainConfig
from fedbench.engine.learner import Learner
from fedbench.errors import ConfigError
from fedbench.module.additions import Addition, add_before_head, add_beside, head_of_width
from fedbench.module.layout import Layout
from tests.methods.simulator import Mlp, blobs


class Shift(Addition):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(5))

    def forward(self, features):
        return features + self.by

    def outputs(self, outputs):
        return 2 * outputs


def shifted(module: Mlp) -> Mlp:
    add_before_head(module, Layout.of(module), "shift", Shift())
    return module


def test_features_are_shifted_and_outputs_doubled():
    x = torch.randn(3, 6)
    plain, module = Mlp(), shifted(Mlp())
    expected = 2 * plain.head(plain.body(x) + 1)
    assert torch.allclose(module(x), expected)


def test_a_copy_has_an_addition_of_its_own():
    module = shifted(Mlp())
    twin = deepcopy(module)
    twin.shift.by.data.zero_()
    x = torch.randn(3, 6)
    plain = Mlp()
    assert torch.allclose(twin(x), 2 * plain.head(plain.body(x)))
    assert not torch.allclose(twin(x), module(x))


def test_what_is_added_counts_and_has_the_type_of_the_run():
    learner = Learner(Mlp(), TrainConfig(precision="64-true"), adapt=lambda m, _: shifted(m) and None)
    assert learner.layout.size == 59 + 5
    data = blobs([4], dtype=torch.float64)[0]
    model = learner.initial()
    assert learner.logits(model, data).dtype == torch.float64
    inside, outside = learner.features(model, data, "shift"), learner.features(model, data)
    assert torch.allclose(outside, inside + 1)
    kept = learner.flat.state_dict(model)
    assert kept is not None
    assert set(kept) == {"body.0.weight", "body.0.bias", "head.weight", "head.bias", "shift.by"}


def test_a_head_of_another_width_has_as_many_classes():
    module = Mlp()
    assert head_of_width(module, Layout.of(module), 3) == 5
    assert module.head.weight.shape == (4, 3)


@pytest.mark.parametrize("add", [add_beside, lambda m, name, a: add_before_head(m, Layout.of(m), name, a)])
def test_a_name_of_the_model_is_not_taken(add):
    with pytest.raises(ConfigError, match="a part 'body' to the model, which has one"):
        add(Mlp(), "body", Shift())
