"""Weights of local statistics that are validated on folds."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbench.aggregation.cross_validation import Fold, make_folds, validation
from fedbench.aggregation.gaussians import (
    Gaussians,
    discriminant,
    packed_triangle,
    shrink,
)
from tests.aggregation.features import logits, problem


def test_folds_are_dealt_class_by_class_in_row_order():
    y = torch.tensor([0, 1, 0, 0, 2, 1, 0, 1])
    rows = torch.arange(8).double()[:, None]
    for folds, places in (
        (2, [[0, 1, 3, 7], [2, 5, 6], [4]]),
        (3, [[0, 1, 6], [2, 5], [3, 7], [4]]),
        (5, [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ):
        dealt = make_folds(rows, y, folds, 4)
        assert [z.flatten().tolist() for z, _ in dealt] == places
        assert all(torch.equal(y[z.flatten().long()], labels) for z, labels in dealt)


@pytest.mark.parametrize("x", [[0.3, 0.7], [0.5], [0.0, 1.0]])
def test_the_gradient_of_the_validation_is_exact(x):
    asked, *_ = problem()
    x = np.array(x)
    _, gradient = validation(x, **asked)
    for k in range(len(x)):
        nudge = np.eye(len(x))[k] * 1e-6
        slope = (validation(x + nudge, **asked)[0] - validation(x - nudge, **asked)[0]) / 2e-6
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_the_validation_sums_the_mean_losses_of_the_held_out_folds():
    asked, common, folds, _, _ = problem()
    total = 0.0
    for local, z, y in folds:
        adapted = Gaussians(*(0.25 * a + 0.75 * b for a, b in zip(local, common, strict=True)))
        total += float(nn.functional.cross_entropy(logits(adapted, asked["prior"], z), y))
    assert validation(np.array([0.25]), **asked)[0] == pytest.approx(total, rel=1e-12)
    assert validation(np.array([0.25, 0.25]), **asked)[0] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("definite", [True, False])
def test_nothing_below_the_diagonal_is_read(definite):
    asked, common, _, z, y = problem()
    if not definite:
        common.covariance.neg_()
    below = torch.full_like(common.covariance, torch.nan).tril(-1)
    half = Gaussians(common.means, common.covariance + below)
    for ours, theirs in zip(discriminant(half, 1e-4), discriminant(common, 1e-4), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(packed_triangle(half.covariance), packed_triangle(common.covariance))
    found = []
    for start, more in ((common, 0), (half, below)):
        start = shrink(start, 1e-4)
        ends = (Gaussians(z[k : k + 3], torch.eye(2, dtype=torch.float64) * 2 + 0.5 + more) for k in (0, 3))
        tries = [Fold.of(start, end, z[k::2], y[k::2]) for k, end in enumerate(ends)]
        found.append(validation(np.array([0.3, 0.2]), tries, start, asked["prior"]))
    assert np.isfinite(found[0][0])
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])
