"""What counts as better, worse, equal or a tie, by an interval and by a test."""

from dataclasses import replace

import pytest

from fedbench.results.contrasts import Contrast, p_of
from fedbench.results.sample_error import SampleError
from fedbench.results.statistics import interval
from fedbench.results.verdict import Bound, Verdict, is_clear, relation_of_interval, relation_of_p


@pytest.mark.parametrize(
    ("low", "high", "relation"),
    [
        *[(0.1, 3, "better"), (-3, -0.1, "worse"), (-0.9, 0.8, "equal")],
        *[(-1, 0.5, "open"), (-0.5, 1.5, "open"), (0, 2, "open")],
    ],
)
def test_an_interval_says_better_worse_or_equal(low, high, relation):
    assert relation_of_interval(Bound(0, low, high, 1, 5), margin=1.0) == relation
    assert relation_of_interval(Bound(0, low, high, 1, 2), margin=1.0) == "open", "two seeds decide nothing"
    assert relation_of_interval(Bound(0, low, high, 1, 5)) == ("open" if relation == "equal" else relation)


@pytest.mark.parametrize(
    ("values", "relation"),
    [([0.1, 0.11, 0.12], "better"), ([-0.1, -0.11, -0.12], "worse"), ([-0.1, 0, 0.1], "open"), ([0.1], "open")],
)
def test_an_interval_over_seeds_says_it_from_three_seeds_on(values, relation):
    assert relation_of_interval(interval(values)) == relation
    assert relation_of_interval(interval(values[:2])) == "open"


@pytest.mark.parametrize(
    ("mean", "p", "half", "relation"),
    [
        *[(0.1, 0.04, 0.09, "better"), (-0.1, 0.04, 0.09, "worse"), (0.5, 0.06, 0.2, "open")],
        *[(0.1, 0.06, 0.39, "equal"), (0.1, 0.06, 0.4, "open"), (0.1, None, None, "open"), (0.1, 0.04, 0.3, "better")],
    ],
)
def test_a_test_says_it_by_its_p_and_by_its_interval_within_the_margin(mean, p, half, relation):
    assert relation_of_p(mean, p, half, margin=0.5) == relation
    assert relation_of_p(mean, p, half) == ("open" if relation == "equal" else relation)


def test_p_is_clear_below_five_percent():
    assert [is_clear(p) for p in (None, 0.051, 0.049)] == [False, False, True]


def test_a_doubt_withholds_who_is_better_but_not_that_two_are_equal():
    found = Verdict("a", "b", Bound(2, 1, 3, 0.5, 5), margin=4)
    assert (found.stated, found.sign, found.signs_without_doubt) == ("better", 1, (1, 1))
    doubted = replace(found, doubt="b failed")
    assert (doubted.relation, doubted.stated, doubted.signs_without_doubt) == ("better", "withheld", (0, 0))
    assert replace(doubted, interval=Bound(0, -1, 1, 0.5, 5)).stated == "equal"
    assert replace(found, is_withheld=True).relation == "withheld"


def test_a_difference_seen_from_the_other_method_has_its_ends_turned():
    assert -Bound(1, 0.5, 3, 0.2, 5, 0.1) == Bound(-1, -3, -0.5, 0.2, 5, 0.1)


def test_a_contrast_may_be_clear_by_itself_only():
    """The t test of 0.8, 1.3 and 1.8: t = 4.5, p = 0.046; in a large family the same is open."""
    gain, p = interval([0.8, 1.3, 1.8]), p_of([0.8, 1.3, 1.8])
    found = Contrast("a", "b", gain, resampled=None, p=p, better_off=interval([1.0] * 3), p_adjusted=0.2)
    assert found.p == pytest.approx(0.046, abs=5e-4)
    assert (found.relation, found.relation_alone, found.signs_without_doubt) == ("open", "better", (0, 1))
    assert replace(found, p=0.06).relation_alone == "open"
    assert replace(found, p_adjusted=0.04).relation == "better"


@pytest.mark.parametrize(("seeds", "relation"), [(3, "open"), (5, "open"), (6, "better")])
def test_equal_differences_decide_once_their_signs_do(seeds, relation):
    assert relation_of_interval(interval([0.01] * seeds)) == relation
    assert relation_of_interval(interval([0.0] * seeds), margin=0.1) == "equal"


def test_equal_differences_over_few_seeds_are_chance_whatever_test_samples_add():
    """Rounding gives them no spread, and the interval of test samples alone decides nothing."""
    assert interval([0.1] * 3).low == interval([0.1] * 3).high  # their computed deviation is 1.4e-17
    over_samples = interval([0.03] * 3, samples=SampleError(1e-4, 50.0))
    assert over_samples.low > 0
    assert relation_of_interval(over_samples) == "open"
    assert relation_of_interval(Bound(0.03, 0.01, 0.05, 0.01, 5, 0.01)) == "open"
    assert relation_of_interval(Bound(0.03, 0.01, 0.05, 0.01, 5, 0.009)) == "better"
