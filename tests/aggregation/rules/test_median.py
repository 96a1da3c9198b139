"""The coordinate-wise median."""

import numpy as np
import pytest
import torch

from fedbench.aggregation.rules.mean import Mean
from fedbench.aggregation.rules.median import Median
from tests.aggregation.rules.models import combine, model, random_models, scalars


def test_every_entry_on_its_own():
    models = [model([1.0, 9.0]), model([5.0, -2.0]), model([100.0, 3.0])]
    assert combine(Median(), models).params.tolist() == [5.0, 3.0]


def test_of_an_even_number_the_mean_of_the_two_in_the_middle():
    assert combine(Median(), scalars(7.0, -50.0, 2.0, 3.0)).params.tolist() == [2.5]


def test_buffers_likewise_and_the_largest_counter():
    found = combine(Median(), scalars(1.0, 2.0, 1e6))
    assert (found.buffers.tolist(), found.counters.tolist()) == ([20.0], [2])


def test_weights_do_not_count():
    assert combine(Median(), scalars(1.0, 2.0, 3.0), [0.98, 0.01, 0.01]).params.tolist() == [2.0]


@pytest.mark.parametrize("count", [5, 6])
def test_as_numpy_on_long_vectors(count):
    models = random_models(count)
    rows = np.stack([m.params.numpy() for m in models]).astype(np.float64)
    assert np.array_equal(combine(Median(), models).params.numpy(), np.median(rows, axis=0).astype(np.float32))


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_or_two_it_is_the_mean(count):
    models = random_models(count)
    found, expected = combine(Median(), models), combine(Mean(), models)
    assert torch.equal(found.params, expected.params)
    assert torch.equal(found.buffers, expected.buffers)
