"""Rotation tests beside the t test, and on studies without any difference."""

import numpy as np
import pytest
from scipy import stats

from fedbench.results.rotations import RotatedScores, directions


def normal(seeds: int, methods: int, number: int = 0) -> np.ndarray:
    draw = np.random.default_rng(number)
    return 90 + draw.normal(0, 1.5, (seeds, 1)) + draw.normal(0, 1.2, (seeds, methods))


@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_p_of_one_difference_is_that_of_the_paired_t_test(seeds):
    scores = normal(seeds, 2)
    (found,) = RotatedScores(scores).adjusted_p([1], 0)
    assert found == pytest.approx(stats.ttest_rel(scores[:, 1], scores[:, 0]).pvalue, abs=0.012)


@pytest.mark.parametrize("two_sided", [True, False])
def test_the_critical_value_of_one_difference_is_a_quantile_of_t(two_sided):
    rotated = RotatedScores(normal(8, 2))
    quantile = stats.t.isf(0.05 / (1 + two_sided), 7)
    assert rotated.critical([1], 0, 0.05, two_sided) == pytest.approx(quantile, rel=0.03)


def test_critical_values_fall_with_the_level_and_grow_with_the_family():
    rotated = RotatedScores(normal(8, 12))
    by_level = [rotated.critical(range(1, 12), 0, level) for level in (0.001, 0.005, 0.02, 0.05)]
    assert by_level == sorted(by_level, reverse=True)
    by_family = [rotated.critical(range(1, last), 0, 0.05) for last in (2, 4, 8, 12)]
    assert by_family == sorted(by_family)
    assert by_family[-1] < stats.t.isf(0.025 / 11, 7)


@pytest.mark.parametrize("seeds", [3, 8])
def test_somebody_is_told_apart_from_equal_methods_in_five_of_a_hundred_studies(seeds):
    studies, others = 400, range(1, 12)
    told = sum(
        RotatedScores(normal(seeds, 12, number), 1000).adjusted_p(others, 0).min() < 0.05 for number in range(studies)
    )
    assert 0.001 < stats.binom.cdf(told, studies, 0.05) < 0.999


def test_adjusted_p_keep_the_order_and_are_never_below_the_raw_ones():
    scores = normal(10, 8) + np.linspace(0, 2, 8)
    rotated = RotatedScores(scores)
    adjusted, raw = rotated.adjusted_p(range(1, 8), 0), [rotated.adjusted_p([own], 0)[0] for own in range(1, 8)]
    means, errors = rotated.differences(range(1, 8), 0)
    order = np.argsort(-np.abs(means) / errors)
    assert list(adjusted[order]) == sorted(adjusted)
    assert all(adjusted >= raw)
    assert adjusted[order[-1]] == pytest.approx(max(adjusted[order[-2]], raw[order[-1]]))


def test_accuracies_that_differ_by_rounding_only_are_equal():
    exact = np.array([0.7, 0.1 + 0.6, 0.8, 0.65, 0.9])
    rounded = exact + np.array([1, -1, 2, 0, -1]) * 2.0**-53
    scores = np.stack([exact, rounded, exact + np.array([0.1, 0.0, 0.02, -0.05, 0.01])], axis=1)
    assert list(RotatedScores(scores).adjusted_p([1], 0)) == [1.0]
    assert RotatedScores(scores).adjusted_p([1, 2], 0)[0] == 1.0
    means, errors = RotatedScores(scores).differences([1], 0)
    assert (means[0], errors[0]) == (0.0, 0.0)


@pytest.mark.parametrize(("seeds", "told"), [(3, False), (4, False), (12, True)])
def test_a_difference_that_is_the_same_in_few_seeds_says_little(seeds, told):
    scores = np.stack([np.linspace(0.5, 0.6, seeds), np.linspace(0.5, 0.6, seeds) + 1 / 80], axis=1)
    assert (RotatedScores(scores).adjusted_p([1], 0)[0] < 0.05) == told


def test_two_seeds_tell_nothing():
    scores = np.array([[0.5, 0.7], [0.6, 0.801]])
    assert list(RotatedScores(scores).adjusted_p([1], 0)) == [1.0]


def test_what_methods_share_in_a_seed_changes_nothing():
    scores = normal(8, 4)
    shifted = scores + np.arange(8)[:, None] * 5.0
    assert RotatedScores(shifted).adjusted_p([1, 2, 3], 0) == pytest.approx(
        RotatedScores(scores).adjusted_p([1, 2, 3], 0), abs=2e-4
    )


def test_rotations_are_the_same_in_every_process_and_have_length_one():
    found = directions(6, 100)
    directions.cache_clear()
    assert np.array_equal(found, directions(6, 100))
    assert np.linalg.norm(found, axis=0) == pytest.approx(np.ones(100), abs=1e-6)
