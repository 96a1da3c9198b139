"""Gaussians of features by class, their discriminant, and their mixtures."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.aggregation.gaussians import (
    Gaussians,
    Moments,
    discriminant,
    label_prior,
    mixed_gaussians,
    packed_triangle,
    statistics,
    unpacked_triangle,
)
from tests.aggregation.features import COMMON, F, Y, f64, head_of, logits, statistics_of, whole
from tests.methods.simulator import close


def test_the_prior_of_labels():
    assert close(label_prior(Y, 2, 1e-4), [0.749950, 0.250050])


def test_the_discriminant():
    given_ = Gaussians(f64([[1, 0], [0, 2]]), f64([[2, 0.5], [0.5, 1]]))
    slopes, offsets = head_of(given_, label_prior(Y, 2, 1e-4))
    assert close(slopes, [0.571424, -0.285669, -0.571339, 2.285527])
    assert close(offsets, [-0.573461, -3.671621])


def test_local_statistics():
    means, covariance = statistics_of(F, Y, COMMON.means, 2, 0, 0)
    assert close(means, [1, 0.666667, 1, 1])
    assert close(covariance, [2, 0.666667, 0.666667, 0.555556])
    assert close(statistics_of(F, Y, COMMON.means, 2, 1e-4, 1)[1], [3.0001, 0.666767, 0.666767, 1.555656])


def test_a_class_needs_more_rows_than_folds_for_a_mean_of_its_own():
    for least, mean in ((2, [1, 2 / 3]), (3, [0.5, 0.5]), (4, [0.5, 0.5])):
        assert close(statistics_of(F, Y, COMMON.means, least, 1e-4, 1).means[0], mean)


def test_adapted_statistics():
    adapted = mixed_gaussians([0.25, 0.5], statistics_of(F, Y, COMMON.means, 2, 1e-4, 1), COMMON)
    assert close(adapted.means, [0.625, 0.541667, 1, 1])
    assert close(adapted.covariance, [2.000050, 0.333383, 0.333383, 1.277828])


def test_statistics_of_parts_are_those_of_all_rows():
    """Also for classes that no part has enough rows of, or that a part has none of."""
    draw = torch.Generator().manual_seed(1)
    z, y = 50 + torch.randn(40, 3, dtype=torch.float64, generator=draw), torch.arange(40).sqrt().long()
    fallback, at_once = torch.rand(8, 3, dtype=torch.float64, generator=draw), Moments.of(z, y, 8)
    for parts in (z.split(7), (z[:9], z[9:9], z[9:])):
        sums = [
            Moments.of(part, labels, 8) for part, labels in zip(parts, y.split([len(p) for p in parts]), strict=True)
        ]
        for least in (0, 4, 9):
            for ours, all_rows in zip(
                *(statistics(s, fallback, least, 1e-4, 1) for s in (sums, [at_once])), strict=True
            ):
                assert torch.allclose(ours, all_rows, rtol=1e-12, atol=1e-12)
            means = torch.where((y.bincount(minlength=8) > least)[:, None], at_once.means, fallback)
            centred = z - means[y]
            expected = centred.T @ centred / 39 + 1e-4 + torch.eye(3, dtype=torch.float64)
            assert torch.allclose(
                whole(statistics([at_once], fallback, least, 1e-4, 1)).covariance, expected, rtol=1e-12
            )


def test_a_singular_covariance_gives_no_numbers():
    singular = Gaussians(torch.ones(2, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64))
    assert discriminant(singular, 1e-4)[0].isnan().all()


def test_a_covariance_that_is_not_positive_definite_is_solved_all_the_same():
    draw = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 5, dtype=torch.float64, generator=draw)
    matrix, means = matrix @ matrix.T, torch.randn(3, 5, dtype=torch.float64, generator=draw)
    matrix[-1, -1] -= 50  # found out at the last of its columns
    assert torch.linalg.eigvalsh(matrix).min() < -0.1
    slopes, _ = discriminant(Gaussians(means, matrix), 1e-4)
    used = (1 - 1e-4) * matrix + 1e-4 * matrix.trace() / 5 * torch.eye(5, dtype=torch.float64)
    assert torch.allclose(slopes @ used, means, atol=1e-12)


samples = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.tuples(*[st.floats(-5, 5)] * 3, st.integers(0, 2)), min_size=n, max_size=n)
)


@given(samples, st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50)
def test_mixed_statistics_lie_between_and_can_be_solved(rows, a, b):
    z, y = f64([r[:3] for r in rows]), torch.tensor([r[3] for r in rows])
    draw = torch.Generator().manual_seed(0)
    common = Gaussians(torch.rand(3, 3, dtype=torch.float64, generator=draw), torch.eye(3, dtype=torch.float64))
    local = statistics_of(z, y, common.means, 2, 1e-4, 1)
    adapted = mixed_gaussians(f64([a, b]), local, common)
    for part, own, other in zip(adapted, local, common, strict=True):
        assert (part >= torch.minimum(own, other) - 1e-9).all()
        assert (part <= torch.maximum(own, other) + 1e-9).all()
    assert torch.allclose(adapted.covariance, adapted.covariance.T, atol=1e-12)
    assert torch.linalg.eigvalsh(adapted.covariance).min() > 0
    prior = label_prior(y, 3, 1e-4)
    assert float(prior.sum()) == pytest.approx(1, abs=1e-12)
    assert (prior > 0).all()
    scores = logits(adapted, prior, z)
    shifted = logits(adapted, 7 * prior, z)
    assert torch.allclose(scores.softmax(1), shifted.softmax(1), atol=1e-9)
    assert torch.equal(unpacked_triangle(packed_triangle(adapted.covariance), 3), adapted.covariance.triu())
    order = torch.argsort(y, stable=True).flip(0)
    again = statistics_of(z[order], y[order], common.means, 2, 1e-4, 1)
    assert torch.allclose(again.means, local.means)
    assert torch.allclose(again.covariance, local.covariance)
