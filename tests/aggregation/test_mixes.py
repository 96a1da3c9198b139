"""Weights of all heads in each client's mix, by programmes on the simplex: the minimum, and of several the shortest."""

from itertools import combinations

import numpy as np
import pytest

from fedbench.aggregation.mixes import head_mixes, simplex_minimum, without_small


def test_equal_clients_with_equal_spreads_share_evenly():
    np.testing.assert_allclose(head_mixes(np.ones((4, 3)), np.ones(4), 0.0), np.full((4, 4), 0.25), atol=1e-9)


def test_weights_go_with_the_inverse_of_the_spread():
    np.testing.assert_allclose(head_mixes(np.zeros((2, 3)), np.array([1.0, 3.0]), 0.0)[0], [0.75, 0.25], atol=1e-9)


def test_a_client_far_away_is_left_out():
    mixes = head_mixes(np.array([[0.0], [0.0], [100.0]]), np.full(3, 0.1), 1e-2)
    np.testing.assert_allclose(mixes, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], atol=1e-4)


def test_small_weights_are_dropped_and_the_rest_sums_to_one():
    assert without_small(np.array([0.6, 0.3, 0.1]), 0.1) == pytest.approx([2 / 3, 1 / 3, 0])


def best_by_enumeration(matrix):
    """The best of the minima over the faces of the simplex, for definite matrices."""
    n, found = len(matrix), []
    for size in range(1, n + 1):
        for face in combinations(range(n), size):
            a = np.zeros(n)
            a[list(face)] = (x := np.linalg.solve(matrix[np.ix_(face, face)], np.ones(size))) / x.sum()
            found += [a] if (a >= 0).all() else []
    return min(found, key=lambda a: a @ matrix @ a)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_minimum_on_the_simplex(seed, scale):
    draw = np.random.default_rng(seed)
    n = 1 + seed % 7
    root = draw.normal(size=(n, n + 1)) * np.exp(draw.normal(size=(n, 1)))
    matrix = (root @ root.T) * scale
    found = simplex_minimum(matrix)
    assert found == pytest.approx(best_by_enumeration(matrix), abs=1e-8)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-14)
    order = draw.permutation(n)
    assert simplex_minimum(matrix[np.ix_(order, order)]) == pytest.approx(found[order], abs=1e-8)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[0], [0], [0], [0]], [0.25] * 4),
        ([[0, 0], [0, 0], [1, 1]], [0.5, 0.5, 0]),
        ([[0, 0], [0, 0], [-1, 1], [1, 0]], [0.5, 0.5, 0, 0]),
        ([[1], [-1], [2]], [None] * 3),
        ([[1, 0], [-1, 0], [0, 1], [0, -1], [5, 5]], [None] * 5),
        ([[1, 1], [1, 1], [1, 1], [4, 4]], [1 / 3, 1 / 3, 1 / 3, 0]),
    ],
)
def test_of_several_minima_the_shortest(points, expected):
    points = np.array(points, dtype=float)
    found = simplex_minimum(points @ points.T)
    shortest = simplex_minimum(points @ points.T + 1e-7 * np.eye(len(points)))  # which a little ridge finds too
    assert found == pytest.approx(shortest, abs=1e-5)
    assert all(e is None or e == pytest.approx(f, abs=1e-9) for e, f in zip(expected, found, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_twins_share_their_weight(seed):
    """Heads that are the same, in FedPAC's programme of one of the clients."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 3, 5)
    heads, spreads = draw.normal(size=(3, 2))[kinds], (draw.random(3) * (draw.random(3) < 0.5))[kinds]
    away = heads[seed % 5] - heads
    matrix = away @ away.T + np.diag(spreads)
    found = simplex_minimum(matrix)
    assert all(np.ptp(found[kinds == kind]) < 1e-8 for kind in set(kinds))
    assert found == pytest.approx(simplex_minimum(matrix + 1e-8 * np.eye(5)), abs=1e-5)
    order = draw.permutation(5)
    assert simplex_minimum(matrix[np.ix_(order, order)]) == pytest.approx(found[order], abs=1e-8)


def test_a_matrix_without_numbers_is_refused():
    with pytest.raises((np.linalg.LinAlgError, ValueError)):
        simplex_minimum(np.full((3, 3), np.nan))
