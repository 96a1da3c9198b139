"""What the choice of test samples adds to an error, beside values computed by hand."""

import numpy as np
import pytest

from fedbench.results.outcomes import MetricOutcomes
from fedbench.results.sample_error import Deviations, deviations, evidence, sample_error, sample_variances


def outcomes(clients, units, values, rows=None) -> MetricOutcomes:
    own = np.array(units)
    return MetricOutcomes(np.array(clients), own if rows is None else np.array(rows), own, np.array(values, float))


def moved(found: Deviations) -> dict[int, float]:
    return dict(zip(found.units.tolist(), found.values.tolist(), strict=True))


def test_a_sample_moves_the_mean_over_clients_by_its_share():
    found = deviations(outcomes([0, 0, 1, 1, 1], [3, 4, 7, 8, 9], [1, 0, 1, 1, 0]), {0: 0.5, 1: 2 / 3})
    # From the mean of the client's other samples: 1 and -1 of two, 1/2, 1/2 and -1 of three.
    expected = {3: 1 / 4, 4: -1 / 4, 7: 1 / 12, 8: 1 / 12, 9: -1 / 6}
    assert moved(found) == pytest.approx(expected)


def test_only_clients_with_a_score_count():
    found = deviations(outcomes([0, 0, 1, 1], [3, 4, 7, 8], [1, 0, 1, 1]), {0: 0.5})
    assert moved(found) == pytest.approx({3: 1 / 2, 4: -1 / 2})


def test_samples_of_a_group_move_together():
    found = deviations(outcomes([0, 0, 0, 0], [5, 5, 6, 7], [1, 1, 0, 0]), {0: 0.5})
    expected = {5: 2 / 4 * 1, 6: -1 / 4 * 2 / 3, 7: -1 / 4 * 2 / 3}  # 1 against 0, and 0 against 2/3
    assert moved(found) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("units", "values"), [([1, 7, 8], [1.0, 1, 0]), ([1, 1, 7, 8], [1.0, 1, 1, 0]), ([1, 2, 7, 8], [np.nan, 1, 1, 0])]
)
def test_what_a_client_has_no_score_without_is_compared_with_other_clients(units, values):
    clients = [0] * (len(units) - 2) + [1, 1]
    found = moved(deviations(outcomes(clients, units, values), {0: 1.0, 1: 0.5}))
    assert found[1] == pytest.approx((1.0 - 0.75) / 2)


def fixed(values: np.ndarray) -> list[Deviations]:
    """Of one client whose rows are the same in every seed. values: `[seeds, rows]`."""
    rows = range(values.shape[1])
    return [deviations(outcomes([0] * len(own), rows, own), {0: own.mean()}) for own in values]


def test_for_fixed_rows_it_is_the_variance_of_their_means_less_that_of_single_outcomes():
    values = np.random.default_rng(0).normal(size=(4, 6)) + 2 * np.random.default_rng(1).normal(size=6)
    seeds, rows = values.shape
    by_row = values.mean(0)
    rest = values - by_row - values.mean(1, keepdims=True) + values.mean()
    expected = (by_row.var(ddof=1) - (rest**2).sum() / ((seeds - 1) * (rows - 1)) / seeds) / rows
    assert sample_error(fixed(values)).variance == pytest.approx(expected * rows / (rows - 1)), "the jackknife's factor"


def test_it_is_the_mean_covariance_of_two_seeds():
    values = np.array([[0.0, 1.0], [0.0, 3.0]])  # moved by -1/2, 1/2 and -3/2, 3/2
    found = sample_error(fixed(values))
    assert found.variance == pytest.approx(2 * (1 / 2) * (3 / 2))
    assert found.dof == pytest.approx(4), "two rows with the same part"


def test_rows_that_never_recur_and_negative_covariances_add_nothing():
    apart = [Deviations(np.array([0, 1]), np.array([-1.0, 1])), Deviations(np.array([2, 3]), np.array([-1.0, 1]))]
    opposite = [Deviations(np.array([0, 1]), np.array([-1.0, 1])), Deviations(np.array([0, 1]), np.array([1.0, -1]))]
    assert (sample_error(apart).variance, sample_error(opposite).variance) == (0, 0)
    assert sample_error(apart[:1]).variance == 0, "one seed"


def test_rows_that_recur_in_some_seeds_count_in_those_pairs():
    seeds = [Deviations(np.array(units), np.array(values)) for units, values in (
        ([0, 1], [1.0, 2.0]), ([1, 2], [3.0, 4.0]), ([2, 5], [5.0, 6.0])
    )]  # fmt: skip
    assert sample_error(seeds).variance == pytest.approx(2 * (2 * 3 + 4 * 5) / 6)


def test_all_pairs_of_methods_at_once_are_the_pairs_one_by_one():
    draw, shared = np.random.default_rng(3), np.random.default_rng(4).normal(size=8)
    methods = [fixed(draw.normal(size=(5, 8)) + weight * shared) for weight in (0.0, 1.0, 3.0)]
    found = sample_variances(methods)
    for i, ours in enumerate(methods):
        for j, theirs in enumerate(methods):
            apart = [one.minus(other) for one, other in zip(ours, theirs, strict=True)]
            assert found[i, j] == pytest.approx(sample_error(apart).variance, abs=1e-15)


def test_evidence_counts_distinct_samples_and_positive_ones():
    seeds = [
        MetricOutcomes(np.zeros(3), np.array(rows), np.array(rows), np.zeros(3), np.array(positive))
        for rows, positive in (([1, 2, 3], [True, False, False]), ([3, 4, 5], [False, True, True]))
    ]
    found = evidence(seeds)
    assert (found.samples, found.per_seed, found.positive, found.positive_per_seed) == (5, 3, 3, 1.5)
    assert evidence([]) is None
