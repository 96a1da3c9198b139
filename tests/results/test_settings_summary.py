"""Summaries over settings, on numbers that were computed by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import trim_mean

from fedbench.results.settings_summary import (
    gains_over,
    groups,
    interquartile_means,
    over_settings,
    profile,
    ranking,
    resampled_counts,
    shares_ahead,
    signed_rank,
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
    assert found.means["ditto"].mean == pytest.approx(0.03)
    assert 0.02 <= found.means["ditto"].low < 0.03 < found.means["ditto"].high <= 0.04
    assert (found.ahead["ditto"].mean, found.ahead["ditto"].low) == (1, 1)
    assert found.thresholds[[0, -1]] == pytest.approx([0.02, 0.04])
    assert found.profiles["ditto"].shares[[0, 50, -1]] == pytest.approx([4 / 6, 2 / 6, 0])


def test_intervals_show_what_other_seeds_would_change():
    # In the first setting one seed of two is a tie, in the second none: of resampled seeds 0, 1 or 2 of 4 are ties.
    found = over_settings(scores(local=LOCAL, ditto=[0.9, 1.0, np.nan] * 2), ACCURACY)
    ahead = found.ahead["ditto"]
    assert (found.seeds, ahead.mean, ahead.low, ahead.high) == (2, 0.875, 0.75, 1)


def test_seeds_that_a_method_lacks_in_one_setting_are_left_out_of_all():
    found = over_settings(scores(local=LOCAL, ditto=[0.95, 0.95, 0.95, np.nan, 0.3, 0.3]), ACCURACY)
    assert found.seeds == 2


def test_one_seed_has_no_interval():
    one = scores(local=LOCAL, ditto=LOCAL).xs(0, level=1, drop_level=False)
    found = over_settings(one, ACCURACY)
    assert (found.means["ditto"].mean, found.means["ditto"].low, found.ahead["ditto"].high) == (0, None, None)


@pytest.mark.parametrize("columns", [{"local": LOCAL}, {"ditto": LOCAL}, {"local": LOCAL, "ditto": [np.nan] * 6}])
def test_without_a_comparison_there_is_no_summary(columns):
    assert over_settings(scores(**columns), ACCURACY) is None


SCORES = pd.DataFrame(
    {
        "a": [0.90, 0.80, 0.85, 0.95, 0.70, 0.88, 0.79, 0.91],
        "b": [0.89, 0.81, 0.84, 0.93, 0.69, 0.87, 0.80, 0.90],
        "c": [0.50, 0.40, 0.45, 0.55, 0.30, 0.48, 0.39, 0.51],
    }
)


def test_ranks_and_friedman_are_scipys():
    found = ranking(SCORES, higher=True)
    assert found.blocks == 8
    assert found.ranks == {"a": 1.25, "b": 1.75, "c": 3.0}
    assert found.friedman == pytest.approx(stats.friedmanchisquare(*(SCORES[m] for m in "abc")).pvalue)


def test_pairs_are_wilcoxons_adjusted_by_holm():
    found = ranking(SCORES, higher=True)
    plain = {p: stats.wilcoxon(SCORES[p[0]], SCORES[p[1]]).pvalue for p in (("a", "b"), ("a", "c"), ("b", "c"))}
    assert found.pairs[("a", "c")] == pytest.approx(3 * plain["a", "c"])  # the two smallest are alike
    assert found.pairs[("b", "c")] == pytest.approx(3 * plain["b", "c"])
    assert found.pairs[("a", "b")] == pytest.approx(plain["a", "b"])
    assert found.groups == [["a", "b"]]


def test_a_lower_error_ranks_first():
    assert list(ranking(SCORES, higher=False).ranks) == ["c", "b", "a"]


def test_too_few_blocks_tell_nobody_apart_and_that_is_known():
    found = ranking(SCORES.iloc[:3], higher=True)
    assert found.groups == [["a", "b", "c"]]
    assert not found.not_joined()
    assert found.finest == 0.75  # three pairs, each at least 2 / 2^3
    assert ranking(SCORES, higher=True).finest == pytest.approx(3 * 2 / 2**8)


def test_blocks_that_a_method_lacks_are_left_out():
    holed = SCORES.copy()
    holed.loc[2, "b"] = np.nan
    assert ranking(holed, higher=True).blocks == 7


def test_methods_that_never_differ_are_one():
    assert signed_rank(SCORES["a"], SCORES["a"]) == 1.0


def test_groups_are_the_longest_runs():
    pairs = {("a", "b"): 0.5, ("a", "c"): 0.01, ("b", "c"): 0.5, ("a", "d"): 0.01, ("b", "d"): 0.01, ("c", "d"): 0.01}
    assert groups("abcd", pairs) == [["a", "b"], ["b", "c"]]
    assert groups("abcd", dict.fromkeys(pairs, 1.0)) == [["a", "b", "c", "d"]]
    assert groups("abcd", dict.fromkeys(pairs, 0.0)) == []


def test_scores_that_differ_by_rounding_errors_only_are_equal():
    scores = pd.DataFrame({"a": [0.1 + 0.2, 0.4], "b": [0.3, 0.4]})
    assert ranking(scores, higher=True).ranks == {"a": 1.5, "b": 1.5}
    assert signed_rank(scores["a"], scores["b"]) == 1.0


def test_a_method_may_be_told_from_the_next_one_but_not_from_a_later_one():
    """b is always just below a; c is last in most blocks, and far ahead in some."""
    a = np.linspace(0.5, 0.6, 20)
    c = np.where(np.arange(20) < 14, a - 0.02, a + 0.05)
    found = ranking(pd.DataFrame({"a": a, "b": a - np.linspace(0.001, 0.002, 20), "c": c}), higher=True)
    assert list(found.ranks) == ["a", "b", "c"]
    assert found.groups == [["b", "c"]]
    assert found.not_told_from("a") == ["c"]
    assert found.not_told_from("c") == ["a", "b"]
    assert found.not_joined() == [("a", "c")]
    assert ranking(SCORES.iloc[:3], higher=True).not_told_from("a") == ["b", "c"]
