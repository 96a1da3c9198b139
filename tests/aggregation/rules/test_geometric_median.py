"""The geometric median."""

import pytest
import torch

from fedbench.aggregation.rules.geometric_median import GeometricMedian
from fedbench.aggregation.rules.mean import Mean
from tests.aggregation.rules.models import combine, model, random_models, scalars


def rule(**options) -> GeometricMedian:
    return GeometricMedian(GeometricMedian.Options(**options), "geometric-median")


def test_on_a_line_it_is_the_median():
    found = combine(rule(), scalars(0.0, 1.0, 3.0, 5.0, 90.0))
    assert found.params.tolist() == [pytest.approx(3.0, abs=1e-4)]
    assert found.buffers.tolist() == [pytest.approx(30.0, abs=1e-3)]
    assert found.counters.tolist() == [4]


def test_in_a_triangle_it_is_the_point_that_sees_all_sides_under_120_degrees():
    corners = [(0.0, 0.0), (4.0, 0.0), (1.0, 3.0)]
    point = combine(rule(iterations=1000), [model(corner) for corner in corners]).params.double()
    to = [torch.tensor(corner, dtype=torch.float64) - point for corner in corners]
    cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in [(to[0], to[1]), (to[1], to[2]), (to[2], to[0])]]
    assert cosines == pytest.approx([-0.5] * 3, abs=1e-4)


def test_one_step_divides_weights_by_the_distance_to_the_mean():
    # The weighted mean of 0, 4 and 8 with weights 1/2, 1/4, 1/4 is 3; the distances are 3, 1 and 5.
    shares = [0.5 / 3, 0.25 / 1, 0.25 / 5]
    found = combine(rule(iterations=1), scalars(0.0, 4.0, 8.0), [0.5, 0.25, 0.25])
    assert found.params.tolist() == [pytest.approx((4 * shares[1] + 8 * shares[2]) / sum(shares))]


def test_who_has_most_of_the_weight_decides():
    assert combine(rule(), scalars(0.0, 1.0, 90.0), [0.2, 0.2, 0.6]).params.tolist() == [pytest.approx(90.0, abs=1e-3)]


def test_of_models_at_one_distance_it_is_the_mean():
    corners = [model(corner) for corner in [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)]]
    assert torch.allclose(combine(rule(), corners).params, combine(Mean(), corners).params, atol=1e-7)


def test_long_vectors_have_the_same_bits_in_every_order_of_chunks():
    models = random_models(5)
    assert torch.equal(combine(rule(), models).params, combine(rule(), models).params)
