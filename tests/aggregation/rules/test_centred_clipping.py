"""Centred clipping."""

import pytest
import torch

from fedbench.aggregation.rules.centred_clipping import CentredClipping
from fedbench.aggregation.rules.mean import Mean
from tests.aggregation.rules.models import combine, model, random_models


def rule(**options) -> CentredClipping:
    return CentredClipping(CentredClipping.Options(**options), "centred-clipping")


def test_an_update_is_at_most_as_long_as_the_radius():
    before = model((1.0, 1.0), (0.0,), (0,))
    models = [model((4.0, 5.0), (2.0,), (1,)), model((1.0, 2.0), (4.0,), (3,))]  # updates (3, 4) and (0, 1)
    found = combine(rule(radius=2.5), models, current=before)
    assert found.params.tolist() == [pytest.approx(1 + 1.5 / 2), pytest.approx(1 + (2 + 1) / 2)]
    assert found.buffers.tolist() == [3.0]
    assert found.counters.tolist() == [3]


def test_a_second_step_starts_from_the_first():
    before, models = model((0.0,)), [model((10.0,)), model((1.0,))]
    assert combine(rule(radius=2.0), models, current=before).params.tolist() == [1.5]
    twice = combine(rule(radius=2.0, iterations=2), models, current=before).params
    assert twice.tolist() == [pytest.approx(1.5 + (2 - 0.5) / 2)]


def test_with_a_large_radius_it_is_the_plain_mean():
    models = random_models(4)
    assert torch.allclose(combine(rule(radius=1e6), models).params, combine(Mean(), models).params, atol=1e-6)


def test_a_model_that_did_not_move_stays():
    before = model((1.0, 2.0))
    assert combine(rule(), [before, before], current=before).params.tolist() == [1.0, 2.0]
