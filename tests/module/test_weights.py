"""A module's numbers as values."""

import pytest
import torch

from fedbench.module.weights import Weights


def weights() -> Weights:
    return Weights(torch.arange(3.0), torch.ones(2), torch.tensor([4]))


def test_a_clone_shares_nothing():
    first = weights()
    second = first.clone()
    for tensor in (second.params, second.buffers, second.counters):
        tensor.zero_()
    assert first.params.tolist() == [0, 1, 2]
    assert first.buffers.tolist() == [1, 1]
    assert first.counters.tolist() == [4]


def test_replace_exchanges_one_vector():
    first = weights()
    second = first.replace(buffers=torch.zeros(2))
    assert second.params is first.params
    assert second.buffers.tolist() == [0, 0]
    assert first.buffers.tolist() == [1, 1]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_a_parameter_that_is_not_finite_is_found(wrong):
    assert weights().is_finite()
    assert not weights().replace(params=torch.tensor([1.0, wrong])).is_finite()


def test_a_large_finite_vector_does_not_overflow():
    assert weights().replace(params=torch.full((10,), 3e38)).is_finite()


def test_a_mask_of_infinities_may_be_a_buffer_but_nan_may_not():
    assert weights().replace(buffers=torch.tensor([0.0, -torch.inf, torch.inf])).is_finite()
    assert not weights().replace(buffers=torch.tensor([0.0, torch.nan])).is_finite()
