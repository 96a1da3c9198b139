"""FedAdam."""

from math import sqrt

import pytest
import torch

from fedbench.aggregation.rules.fedadam import FedAdam
from fedbench.aggregation.rules.mean import Mean
from tests.aggregation.rules.models import combine, model, random_models, scalars


def fedadam(**options: float) -> FedAdam:
    return FedAdam(FedAdam.Options(**options), "fedadam")


def test_two_steps_on_paper():
    rule, memory = fedadam(lr=0.5, beta1=0.9, beta2=0.99, tau=0.1), {}
    first = combine(rule, scalars(1.0, 3.0), [0.5, 0.5], model([0.0], [0.0], [0]), memory)
    # update 2: m = 0.2, v = 0.99 * 0.01 + 0.01 * 4 = 0.0499
    x = 0.5 * 0.2 / (sqrt(0.0499) + 0.1)
    assert first.params.tolist() == [pytest.approx(x, rel=1e-6)]
    second = combine(rule, scalars(1.0, 3.0), [0.75, 0.25], first, memory)
    update = 1.5 - x
    m, v = 0.9 * 0.2 + 0.1 * update, 0.99 * 0.0499 + 0.01 * update**2
    assert second.params.tolist() == [pytest.approx(x + 0.5 * m / (sqrt(v) + 0.1), rel=1e-6)]
    assert memory["m"].tolist() == [pytest.approx(m)]
    assert memory["v"].tolist() == [pytest.approx(v)]


def test_buffers_are_averaged_with_the_weights():
    found = combine(fedadam(), scalars(1.0, 2.0, 4.0), [0.5, 0.25, 0.25], model([0.5], [7.0], [0]))
    assert (found.buffers.tolist(), found.counters.tolist()) == ([20.0], [2])


def test_where_nobody_moves_nothing_moves():
    assert combine(fedadam(), scalars(3.0, 3.0), (), model([3.0], [0.0], [0])).params.tolist() == [3.0]


def test_without_momentum_and_with_a_large_tau_it_is_the_mean():
    models = random_models(4)
    rule = fedadam(lr=1e8, beta1=0, beta2=0, tau=1e8)  # 1e8 update / (|update| + 1e8)
    found, expected = combine(rule, models, (), random_models(1, seed=1)[0]), combine(Mean(), models)
    assert torch.allclose(found.params, expected.params, rtol=0, atol=1e-5)
    assert torch.equal(found.buffers, expected.buffers)


def test_the_model_before_is_not_written_to():
    before = model([1.0], [2.0], [0])
    combine(fedadam(), scalars(5.0, 6.0), (), before)
    assert before.params.tolist() == [1.0]
    assert before.buffers.tolist() == [2.0]
