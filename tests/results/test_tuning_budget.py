"""Expected scores by the number of tuned points, on numbers that were computed by hand."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from fedbench.results.tuning_budget import chances_of_best, tuning_budget


def test_the_best_of_k_points_drawn_without_replacement():
    # Of 1 2 4: one point is 7/3 on average; of two the best is 2 once and 4 twice; of three it is 4.
    assert tuning_budget([2, 4, 1]).validation == pytest.approx([7 / 3, 10 / 3, 4])


def test_less_is_better_for_errors():
    assert tuning_budget([2, 4, 1], higher=False).validation == pytest.approx([7 / 3, 4 / 3, 1])


def test_the_test_score_is_that_of_the_point_chosen_on_validation():
    # The point with the best validation, 4, has a bad test score of 0.
    assert tuning_budget([2, 4, 1], [5, 0, 3]).test == pytest.approx([8 / 3, 5 / 3, 0])
    assert tuning_budget([2, 4, 1]).test is None


def test_of_equal_points_the_first_one_is_chosen():
    assert tuning_budget([1, 1], [7, 3]).test == pytest.approx([5, 7])
    assert tuning_budget([1, 1], [7, 3], higher=False).test == pytest.approx([5, 7])


def test_it_is_the_mean_over_all_choices_of_points():
    values = np.random.default_rng(0).normal(size=6)
    each = [np.mean([max(own) for own in combinations(values, k)]) for k in range(1, 7)]
    assert tuning_budget(values).validation == pytest.approx(each)


def test_chances_of_many_points_stay_exact():
    chances = chances_of_best(300)
    assert chances.sum(1) == pytest.approx(np.ones(300))
    assert chances[99, 199] == pytest.approx(comb(199, 99) / comb(300, 100), rel=1e-9)
