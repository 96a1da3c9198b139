"""Intervals agree with scipy; differences are paired seed by seed and client by client."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbench.results.sample_error import SampleError
from fedbench.results.statistics import (
    NoValue,
    client_pairs,
    interval,
    paired_difference,
    pooled_means,
    share_interval,
    share_that_gains,
    worst_tenth,
)
from fedbench.tasks import load

ACCURACY = load("classification").primary
ACCURACIES = st.floats(0, 1, allow_nan=False)


def frame(values: dict[int, list[float]]) -> pd.DataFrame:
    rows = [(seed, client, value) for seed, found in values.items() for client, value in enumerate(found)]
    return pd.DataFrame(rows, columns=["seed", "client", "test_accuracy"])


@pytest.mark.parametrize("values", [[0.5, 0.6], [0.5, 0.6, 0.58], list(np.random.default_rng(0).random(10))])
def test_interval_is_that_of_scipy(values: list[float]) -> None:
    found = interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@given(st.lists(ACCURACIES, min_size=2, max_size=8))
def test_interval_lies_around_the_mean(values: list[float]) -> None:
    found = interval(values)
    assert found.low <= found.mean <= found.high
    assert found.half == pytest.approx(found.mean - found.low, abs=1e-12)


def test_sd_divides_by_one_less_than_the_seeds() -> None:
    assert interval([0.5, 0.7]).sd == pytest.approx(0.2 / 2**0.5)


def test_pooled_means_weigh_by_counts_seed_by_seed() -> None:
    seeds, values = pd.Series([0, 0, 1, 1, 2]), pd.Series([0.0, 1.0, 0.5, math.nan, 0.5])
    assert pooled_means(seeds, values, pd.Series([10, 30, 4, 9, math.nan])).to_dict() == {0: 0.75, 1: 0.5}


def test_one_seed_has_no_interval() -> None:
    found = interval([0.5])
    assert found.sd is None
    assert (found.mean, found.low, found.high, found.half, found.seeds) == (0.5, None, None, None, 1)


def test_missing_seeds_are_left_out_and_none_is_an_error() -> None:
    assert interval([0.5, math.nan, 0.7]).values == (0.5, 0.7)
    with pytest.raises(NoValue):
        interval([math.nan])


def test_two_seeds_have_an_interval() -> None:
    found = interval([0.1, 0.1])
    assert found.low == 0.1


def test_equal_differences_of_accuracies_are_the_same_number() -> None:
    ours, theirs = frame({0: [0.3, 0.9], 1: [0.6, 0.7]}), frame({0: [0.2, 0.8], 1: [0.5, 0.6]})
    pairs = client_pairs(ours, theirs, ACCURACY)
    assert set(pairs["difference"]) == {0.1}
    assert paired_difference(pairs).values == (0.1, 0.1)


@given(st.lists(ACCURACIES, min_size=1, max_size=8))
def test_the_interval_of_a_share_stays_within_0_and_1(values: list[float]) -> None:
    found = share_interval(values)
    if len(values) > 1:
        assert 0 <= found.low <= found.mean <= found.high <= 1


def test_the_interval_of_a_share_is_nearly_students_in_the_middle_and_lopsided_at_the_ends() -> None:
    middle = [0.5, 0.52, 0.48, 0.51, 0.49]
    assert share_interval(middle).high == pytest.approx(interval(middle).high, abs=0.002)
    few = share_interval([0.6, 0.9])
    assert few.mean - few.low > few.high - few.mean
    assert (share_interval([1.0, 1.0]).low, share_interval([0.3]).low) == (1.0, None)


def test_paired_difference_is_the_paired_t_interval_over_seed_means() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = ({seed: list(rng.random(6)) for seed in range(5)} for _ in range(2))
    means = [[np.mean(side[seed]) for seed in range(5)] for side in (ours, theirs)]
    expected = stats.ttest_rel(*means).confidence_interval(0.95)
    found = paired_difference(client_pairs(frame(ours), frame(theirs), ACCURACY))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_only_what_both_have_is_paired() -> None:
    ours, theirs = frame({0: [0.5, 0.9], 1: [0.4]}), frame({0: [0.3], 2: [0.1]})
    assert client_pairs(ours, theirs, ACCURACY)["difference"].tolist() == pytest.approx([0.2])
    assert paired_difference(client_pairs(ours, frame({7: [0.1]}), ACCURACY)) is None


def test_every_client_of_a_seed_and_every_seed_weighs_the_same() -> None:
    ours, theirs = frame({0: [0.6, 0.6, 0.6], 1: [0.5]}), frame({0: [0.5, 0.5, 0.5], 1: [0.1]})
    assert paired_difference(client_pairs(ours, theirs, ACCURACY)).mean == pytest.approx((0.1 + 0.4) / 2)


def test_share_that_gains_counts_strict_gains() -> None:
    ours, theirs = frame({0: [0.6, 0.5, 0.4, 0.9]}), frame({0: [0.5, 0.5, 0.5, 0.5]})
    assert share_that_gains(client_pairs(ours, theirs, ACCURACY)) == 0.5


@pytest.mark.parametrize(("count", "worst"), [(1, 1), (10, 1), (11, 2), (100, 10)])
def test_worst_tenth_takes_the_ceiling(count: int, worst: int) -> None:
    assert worst_tenth(range(count)) == pytest.approx(np.mean(range(worst)))
    assert math.isnan(worst_tenth([]))


def test_the_worst_tenth_is_the_largest_where_less_is_better() -> None:
    assert worst_tenth([0.1, 0.9, 0.5], higher=False) == 0.9
    assert worst_tenth([0.1, 0.9, 0.5]) == 0.1


def test_samples_add_their_variance_and_satterthwaites_degrees_of_freedom() -> None:
    values = [0.1, 0.2, 0.3]  # variance of the mean 1/300
    found = interval(values, samples=SampleError(8 / 300, 8.0))
    dof = 9**2 / (1 / 2 + 8**2 / 8)
    assert found.half == pytest.approx(stats.t.ppf(0.975, dof) * 0.03**0.5)
    assert found.to_dict()["over_samples"] is True


def test_samples_never_make_an_interval_narrower() -> None:
    values = [0.1, 0.2, 0.3]
    assert interval(values, samples=SampleError(1e-4, 500.0)).half == pytest.approx(interval(values).half)
    assert interval([0.2, 0.2], samples=SampleError(0.0, 1.0)).half == 0


def test_intervals_of_shares_stay_within_0_and_1() -> None:
    """Wilson's ends solve (mean - p)^2 = half^2 p (1 - p) / (mean (1 - mean)), with half of Student's interval."""
    values = [0.96, 0.999, 0.98]
    plain, found = interval(values), interval(values, bounds=(0.0, 1.0))
    assert plain.high > 1 >= found.high > found.mean > found.low
    assert found.is_lopsided
    for end in (found.low, found.high):
        variance = found.mean * (1 - found.mean)
        assert (found.mean - end) ** 2 == pytest.approx(plain.half**2 * end * (1 - end) / variance)
    assert interval([0.5, 0.6], bounds=(0.0, 1.0)) != interval([0.5, 0.6])  # of two seeds, from -0.09 to 1.2
    assert interval([0.5, 0.52], bounds=(0.0, 1.0)) == interval([0.5, 0.52])


def test_intervals_end_at_the_only_bound_of_their_values() -> None:
    errors = [0.02, 0.6, 0.1]
    plain, found = interval(errors), interval(errors, bounds=(0.0, None))
    assert plain.low < 0
    assert (found.low, found.high) == (0.0, plain.high)
    fits = [1 - error for error in errors]
    assert interval(fits, bounds=(None, 1.0)).high == 1.0
    assert interval([0.5, 0.52], bounds=(0.0, None)) == interval([0.5, 0.52])


def test_intervals_between_two_bounds_are_those_of_shares_on_their_scale() -> None:
    """A coefficient from -1 to 1, such as Cohen's kappa, may be negative."""
    values = [-0.99, -0.9, -0.8]
    found = interval(values, bounds=(-1.0, 1.0))
    share = interval([(value + 1) / 2 for value in values], bounds=(0.0, 1.0))
    assert -1 <= found.low < found.mean < found.high
    assert (found.low, found.high) == pytest.approx((2 * share.low - 1, 2 * share.high - 1))


def test_bounds_that_values_leave_are_none() -> None:
    values = [-0.1, -0.05, -0.08]
    assert interval(values, bounds=(0.0, 1.0)) == interval(values)
