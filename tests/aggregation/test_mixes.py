"""Weights of all heads in each client's mix, by a programme on the simplex."""

import numpy as np
import pytest

from fedbench.aggregation.mixes import head_mixes, without_small


def test_equal_clients_with_equal_spreads_share_evenly():
    np.testing.assert_allclose(head_mixes(np.ones((4, 3)), np.ones(4), 0.0), np.full((4, 4), 0.25), atol=1e-9)


def test_weights_go_with_the_inverse_of_the_spread():
    np.testing.assert_allclose(head_mixes(np.zeros((2, 3)), np.array([1.0, 3.0]), 0.0)[0], [0.75, 0.25], atol=1e-9)


def test_a_client_far_away_is_left_out():
    mixes = head_mixes(np.array([[0.0], [0.0], [100.0]]), np.full(3, 0.1), 1e-2)
    np.testing.assert_allclose(mixes, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], atol=1e-4)


def test_small_weights_are_dropped_and_the_rest_sums_to_one():
    assert without_small(np.array([0.6, 0.3, 0.1]), 0.1) == pytest.approx([2 / 3, 1 / 3, 0])
