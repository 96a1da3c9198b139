"""Summaries over settings, on numbers that were computed by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import trim_mean

from fedbench.results.over_settings import (
    gains_over,
    interquartile_means,
    over_settings,
    profile,
    resampled_counts,
    shares_ahead,
)
from tests.results.tabled import ACCURACY, ERROR

ONCE = np.ones((1, 8), dtype=int)
GAINS = np.array([[0.0, 0.1, 0.2, 0.9], [-0.8, 0.3, 0.0, 0.4]])


def test_the_interquartile_mean_is_that_of_the_middle_half():
    # Of -0.8 0 0 0.1 0.2 0.3 0.4 0.9 two at each end are cut: the mean of 0 0.1 0.2 0.3.
    assert interquartile_means(GAINS, ONCE) == pytest.approx([0.15])
    assert interquartile_means(GAINS, ONCE) == pytest.approx(trim_mean(GAINS.ravel(), 0.25))


def test_runs_that_are_drawn_twice_count_twice():
    counts = resampled_counts(2, 4, draws=50)
    drawn = [trim_mean(np.repeat(GAINS.ravel(), own), 0.25) for own in counts]
    assert interquartile_means(GAINS, counts) == pytest.approx(drawn)


def test_a_tie_is_half_an_improvement():
    # Better in 5 of 8, equal in 2.
    counts = np.array([[0, 4, 0, 0, 4, 0, 0, 0]])
    assert shares_ahead(GAINS, ONCE) == pytest.approx([5 / 8 + 1 / 8])
    assert shares_ahead(GAINS, counts) == pytest.approx([0.5])


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    found = profile(GAINS, np.array([-1.0, 0.0, 0.3, 0.9]), ONCE)
    assert found.shares.tolist() == [1, 5 / 8, 2 / 8, 0]
    assert found.low.tolist() == found.high.tolist() == found.shares.tolist()


def test_seeds_are_resampled_within_settings_and_always_alike():
    counts = resampled_counts(3, 5)
    assert counts.shape == (4000, 15)
    assert (counts.reshape(-1, 3, 5).sum(2) == 5).all()
    assert counts.mean(0) == pytest.approx(np.ones(15), abs=0.06)
    assert (counts == resampled_counts(3, 5)).all()


def test_gains_are_differences_of_accuracies_and_shares_of_local_errors():
    ours, local = np.array([[0.5, 0.7]]), np.array([[0.4, 0.6]])
    assert gains_over(ours, local, ACCURACY).tolist() == [[0.1, 0.1]]
    assert gains_over(ours, local, ERROR).tolist() == [[-0.2, -0.2]]
    both = gains_over(np.vstack([ours, 10 * ours]), np.vstack([local, 10 * local]), ERROR)
    assert both.tolist() == [[-0.2, -0.2], [-0.2, -0.2]], "each setting by its own local training"


def scores(**columns: list[float]) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([["easy", "hard"], [0, 1, 2]])
    return pd.DataFrame(columns, index=index)


LOCAL = [0.9, 0.9, 0.9, 0.2, 0.2, 0.2]


def test_settings_are_made_comparable_by_their_local_training():
    found = over_settings(scores(local=LOCAL, ditto=[0.92, 0.93, 0.94, 0.22, 0.23, 0.24]), ACCURACY)
    assert (found.settings, found.seeds) == (2, 3)
    assert list(found.means) == ["ditto"]
    # Of .02 .02 .03 .03 .04 .04 one at each end is cut.
    assert found.means["ditto"].value == pytest.approx(0.03)
    assert 0.02 <= found.means["ditto"].low < 0.03 < found.means["ditto"].high <= 0.04
    assert (found.ahead["ditto"].value, found.ahead["ditto"].low) == (1, 1)
    assert found.thresholds[[0, -1]] == pytest.approx([0.02, 0.04])
    assert found.profiles["ditto"].shares[[0, 50, -1]] == pytest.approx([4 / 6, 2 / 6, 0])


def test_intervals_show_what_other_seeds_would_change():
    # In the first setting one seed of two is a tie, in the second none: of resampled seeds 0, 1 or 2 of 4 are ties.
    found = over_settings(scores(local=LOCAL, ditto=[0.9, 1.0, np.nan] * 2), ACCURACY)
    ahead = found.ahead["ditto"]
    assert (found.seeds, ahead.value, ahead.low, ahead.high) == (2, 0.875, 0.75, 1)


def test_seeds_that_a_method_lacks_in_one_setting_are_left_out_of_all():
    found = over_settings(scores(local=LOCAL, ditto=[0.95, 0.95, 0.95, np.nan, 0.3, 0.3]), ACCURACY)
    assert found.seeds == 2


def test_one_seed_has_no_interval():
    one = scores(local=LOCAL, ditto=LOCAL).xs(0, level=1, drop_level=False)
    found = over_settings(one, ACCURACY)
    assert (found.means["ditto"].value, found.means["ditto"].low, found.ahead["ditto"].high) == (0, None, None)


@pytest.mark.parametrize("columns", [{"local": LOCAL}, {"ditto": LOCAL}, {"local": LOCAL, "ditto": [np.nan] * 6}])
def test_without_a_comparison_there_is_no_summary(columns):
    assert over_settings(scores(**columns), ACCURACY) is None
