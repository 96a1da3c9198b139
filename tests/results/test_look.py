"""Intervals of paired differences, with and without seeds that lie far from the others."""

import numpy as np
import pytest
from scipy import stats

from fedbench.results.look import Look, without_outliers

DRAW = np.random.default_rng(4)
SCORES = DRAW.normal([90.0, 92.0, 92.5], 1.0, (8, 3))
METHODS = ["local", "good", "best"]
OUTLIER = np.array([[0.0, 1.0], [0.0, 1.2], [0.0, 0.9], [0.0, 1.1], [0.0, -9.0]])


def test_an_interval_is_that_of_the_paired_difference():
    bound = Look(SCORES, METHODS, 200).bound("best", "local", 2.5)
    gaps = SCORES[:, 2] - SCORES[:, 0]
    assert (bound.mean, bound.error) == pytest.approx((gaps.mean(), stats.sem(gaps)))
    assert (bound.low, bound.high) == pytest.approx((gaps.mean() - 2.5 * bound.error, gaps.mean() + 2.5 * bound.error))
    assert bound.seeds == 8
    assert bound.samples == 0


def test_what_test_samples_add_to_a_variance_widens_an_interval():
    plain, wide = (Look(SCORES, METHODS, 200, added) for added in (None, np.full((3, 3), 0.3**2)))
    one, other = (look.bound("best", "local", 1.0) for look in (plain, wide))
    assert other.error**2 == pytest.approx(one.error**2 + 0.3**2)
    assert other.samples == pytest.approx(0.3)


def test_seeds_far_from_the_others_are_left_out():
    means, errors = without_outliers(OUTLIER)
    kept = (OUTLIER[:, 1] - OUTLIER[:, 0])[:4]
    assert means[1, 0] == pytest.approx(kept.mean())
    assert errors[1, 0] == pytest.approx(stats.sem(kept))
    assert means[0, 1] == -means[1, 0]


@pytest.mark.parametrize("gaps", [[1.0, 1.2, 0.9, 1.1, 1.3], [1.0, 1.0, 1.0, 1.0, 5.0]])
def test_no_seed_is_left_out_where_none_is_far_or_most_agree(gaps):
    means, errors = without_outliers(np.array([[0.0, gap] for gap in gaps]))
    assert means[1, 0] == pytest.approx(np.mean(gaps))
    assert errors[1, 0] == pytest.approx(stats.sem(gaps))


def test_a_cautious_interval_holds_both():
    look = Look(OUTLIER, ["one", "other"], 200)
    plain, cautious = (bound("other", "one", 1.0) for bound in (look.bound, look.cautious))
    means, errors = without_outliers(OUTLIER)
    assert cautious.low == plain.low < 0
    assert cautious.high == pytest.approx(means[1, 0] + errors[1, 0])
    assert cautious.high > plain.high


def test_leads_are_the_low_ends_of_all_pairs():
    look, critical = Look(SCORES, METHODS, 200), {"good": 2.0, "best": 3.0}
    plain, cautious = look.leads(critical)
    for row, one in enumerate(critical):
        for column, other in enumerate(critical):
            if one != other:
                assert plain[row, column] == pytest.approx(look.bound(one, other, critical[other]).low)
                assert cautious[row, column] == pytest.approx(look.cautious(one, other, critical[other]).low)
    assert np.isneginf(np.diag(plain)).all()
