"""Random points of the simplex, and clients projected to it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.aggregation.simplex import away, components, energy, project, simplex_points, spread_out, towards, walk
from tests.methods.simulator import close

ROWS = torch.tensor([[0.5, 0.2, -0.1], [-0.3, 0.1, 0.4], [0, 0, 0]], dtype=torch.float64)


THIRDS = [1 / 3] * 3


X = torch.tensor([[1.0, 0, 0, 2], [0, 1, 0, 1], [2, 0, 1, 0], [0, 0, 3, 1]])


@pytest.mark.parametrize(
    ("z", "centres", "value"),
    [
        (0.1, [[1, 0, 0], [0, 0, 1], THIRDS], 0.154151),
        (0.5, [[0.8, 0.2, 0], [0, 0.2, 0.8], THIRDS], 0.780926),
        (1.0, [[0.633333, 0.333333, 0.033333], [0, 0.35, 0.65], THIRDS], 1.348877),
    ],
)
def test_centres_by_scale_and_their_energy(z, centres, value):
    found = spread_out(ROWS, z)
    assert close(found, [value for row in centres for value in row])
    assert energy(found) == pytest.approx(value, abs=5e-7)


def test_principal_components():
    assert close(
        components(X, 3),
        [
            [-1.139438, -0.296232, 0.859609],
            [-0.929748, -0.804930, -0.782723],
            [-0.017377, 1.608204, -0.195901],
            [2.086563, -0.507042, 0.119015],
        ],
    )
    assert not components(X, 4)[:, 3].any()  # four points span three dimensions
    assert components(X[:2], 4).shape == (2, 4)
    assert not components(X[:1].repeat(3, 1), 2).any()


def test_the_projection():
    centres = project(X, 3)
    assert close(centres, [0, 0, 1, 0.242719, 0.367537, 0.389744, 0, 1, 0, 1, 0, 0])
    assert energy(centres) == pytest.approx(0.010745, abs=5e-7)
    assert torch.equal(centres, spread_out(components(X, 3), 1.0))


def test_components_are_unique_whatever_the_decomposition():
    assert torch.allclose(components(-X, 3).abs(), components(X, 3).abs())
    for row in (0, 2):
        flipped = X.clone()
        flipped[row] = X[3 - row]
        flipped[3 - row] = X[row]
        order = [3 - i if i in (row, 3 - row) else i for i in range(4)]
        assert torch.allclose(components(flipped, 3), components(X, 3)[order], atol=1e-12)


def test_a_vector_added_to_all_leaves_the_centres():
    shift = torch.tensor([3.0, -1, 0.5, 2])
    assert torch.allclose(project(X + shift, 3), project(X, 3), atol=1e-9)


@pytest.mark.parametrize(("clients", "count"), [(1, 1), (3, 1), (2, 2)])
def test_few_clients_and_few_endpoints(clients, count):
    centres = project(X[:clients], count)
    assert centres.shape == (clients, count)
    assert torch.allclose(centres.sum(1), torch.ones(clients, dtype=torch.float64))


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=5), st.floats(1e-4, 1))
def test_centres_lie_in_the_simplex(rows, z):
    found = spread_out(torch.tensor(rows, dtype=torch.float64), z)
    assert (found >= 0).all()
    assert torch.allclose(found.sum(1), torch.ones(len(rows), dtype=torch.float64))


BETA = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


def test_points_near_a_centre():
    radius = torch.tensor([[0.08]], dtype=torch.float64)
    directions = torch.tensor([[0.6, -0.3, 0.1]], dtype=torch.float64)
    assert close(away(BETA, directions, radius), [0.248, 0.476, 0.308])
    assert close(away(BETA, directions * 0.1, radius), [0.248, 0.476, 0.308])
    goal = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    assert close(towards(BETA, goal, radius), [0.24, 0.476, 0.284])
    assert close(towards(BETA, goal, radius * 100), [0.7, 0.2, 0.1])
    assert close(towards(BETA, BETA[None], radius * 0), BETA.tolist())


def test_points_of_the_simplex_are_uniform():
    points = simplex_points((20_000, 3), torch.Generator().manual_seed(0))
    assert torch.allclose(points.sum(1), torch.ones(20_000, dtype=torch.float64))
    assert (points >= 0).all()
    assert close(points.mean(0), THIRDS, digits=2)
    assert float((points[:, 0] > 0.5).double().mean()) == pytest.approx(0.25, abs=0.01)  # (1 - x)^2


def draws(centre=None, **options):
    return walk((5000, 3), torch.Generator().manual_seed(0), centre, **options)


def test_coordinates_before_and_after_the_projection():
    assert torch.allclose(draws().sum(1), torch.ones(5000, dtype=torch.float64))
    near, inside = draws(BETA, radius=0.5), draws(BETA, radius=0.5, inside=True)
    for points in (near, inside):
        distance = (points - BETA).abs().sum(1)
        assert 0.4 < float(distance.max()) <= 0.5 + 1e-9
        assert float(distance.mean()) == pytest.approx(0.25, abs=0.02)
    assert not torch.allclose(near.sum(1), torch.ones(5000, dtype=torch.float64))
    assert torch.allclose(inside.sum(1), torch.ones(5000, dtype=torch.float64))
    assert (inside >= 0).all()
    assert torch.equal(draws(BETA, radius=0), BETA.expand(5000, 3))
