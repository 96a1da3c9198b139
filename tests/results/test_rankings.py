"""Ranks over blocks, as scipy and by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedbench.results.rankings import groups, ranking, signed_rank

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
