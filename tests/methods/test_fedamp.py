"""fedamp: what the specification promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedbench.aggregation.means import dot_products, mixtures
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedamp import attention, distances_from_products, softmax_of_cosines
from tests.methods.simulator import (
    Data,
    Mlp,
    Quadratic,
    Simulation,
    accuracy_of,
    assert_same,
    blobs,
    close,
    equal,
    targets,
)
from tests.runtime.rounds import small

SIZES = [9, 17, 12]
STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1, "precision": "64-true"}
PLACES = [(0, 0), (1, 0), (0, 2)]
DIRECTIONS = [(1, 0), (1, 1), (0, 2)]


def run(name="fedamp", rounds=3, norm=False, sizes=SIZES, **options) -> Simulation:
    fixed = {k: options.pop(k) for k in ("draw", "train") if k in options}
    return Simulation(name, blobs(sizes), module=Mlp(norm), **fixed, **options).run(rounds)


def rows(*values) -> list[Tensor]:
    return [torch.tensor(v, dtype=torch.float32) for v in values]


def distances(*values) -> Tensor:
    return distances_from_products(dot_products(rows(*values)))


def traced(mine: Simulation) -> Tensor:
    """The weights of the last round, float64."""
    traces, everyone = mine.log[-1].traces, range(mine.context.clients)
    found = [[traces[i, "weight_self" if i == j else f"weight/{j}"] for j in everyone] for i in everyone]
    return torch.tensor(found, dtype=torch.float64)


def mixed(models, weights) -> Tensor:
    out = [torch.empty_like(model) for model in models]
    mixtures(models, weights, out)
    return torch.stack(out)


def test_squared_distances():
    assert distances(*PLACES).tolist() == [[0, 1, 4], [1, 0, 5], [4, 5, 0]]


@pytest.mark.parametrize(
    ("alpha", "sigma", "expected"),
    [
        (0.5, 2, [0.814534, 0.151633, 0.033834, 0.151633, 0.827846, 0.020521, 0.033834, 0.020521, 0.945645]),
        (1, 4, [0.713330, 0.194700, 0.091970, 0.194700, 0.733674, 0.071626, 0.091970, 0.071626, 0.836404]),
        (1e4, 1e6, [0.98, 0.01, 0.01, 0.01, 0.98, 0.01, 0.01, 0.01, 0.98]),
    ],
)
def test_weights_of_algorithm_1(alpha, sigma, expected):
    weights, clipped = attention(distances(*PLACES), alpha, sigma)
    assert close(weights, expected, 6 if sigma < 100 else 5)
    assert not clipped


def test_mixtures_of_algorithm_1():
    weights, _ = attention(distances(*PLACES), 0.5, 2)
    assert close(mixed(rows(*PLACES), weights), [0.151633, 0.067668, 0.827846, 0.041042, 0.020521, 1.891290])


def test_weights_of_the_others_never_exceed_1():
    weights, clipped = attention(distances(*PLACES), 4, 2)
    assert close(weights, [0, 0.817574, 0.182426, 0.880797, 0, 0.119203, 0.270671, 0.164170, 0.565159])
    assert clipped


THIRD = 0.333333


@pytest.mark.parametrize(
    ("sigma", "own", "expected"),
    [
        (1, 1 / 3, [THIRD, 0.446508, 0.220159, THIRD, THIRD, THIRD, 0.220159, 0.446508, THIRD]),
        (10, 1 / 3, [THIRD, 0.666101, 0.000566]),
        (1, 0.5, [0.5, 0.334881, 0.165119]),
        (0, 1 / 3, [THIRD] * 9),
    ],
)
def test_weights_by_cosines(sigma, own, expected):
    weights = softmax_of_cosines(dot_products(rows(*DIRECTIONS)), sigma, own)
    assert close(weights.flatten()[: len(expected)], expected)


def test_mixtures_by_cosines():
    models = rows(*DIRECTIONS)
    weights = softmax_of_cosines(dot_products(models), 1, 1 / 3)
    assert close(mixed(models, weights), [0.779841, 0.886826, 0.666667, 1, 0.666667, 1.113174])


def test_a_sharp_softmax_does_not_overflow():
    weights = softmax_of_cosines(dot_products(rows((1, 0), (1, 0), (-1, 0), (0, 0))), 1e6, 0.25)
    assert torch.isfinite(weights).all()
    assert close(weights[0], [0.25, 0.75, 0, 0])


models = st.lists(st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4), min_size=1, max_size=6)


@given(models, st.floats(1e-3, 50), st.floats(0.1, 100))
def test_invariants_of_the_weights(values, alpha, sigma):
    vectors = rows(*values)
    squared = distances_from_products(dot_products(vectors))
    weights, clipped = attention(squared, alpha, sigma)
    assert_weights(weights, vectors)
    if not clipped:
        assert torch.equal(weights, weights.T)
        assert torch.allclose(mixed(vectors, weights).mean(0), torch.stack(vectors).mean(0), atol=1e-5)
    for i, j, k in torch.combinations(torch.arange(len(vectors)), 3).tolist():
        if squared[i, j] < squared[i, k]:
            assert weights[i, j] >= weights[i, k]


@given(models, st.floats(0, 200), st.floats(0, 1))
def test_invariants_of_the_softmax(values, sigma, own):
    vectors = rows(*values)
    weights = softmax_of_cosines(dot_products(vectors), sigma, own)
    assert_weights(weights, vectors)
    assert torch.allclose(weights.diagonal(), torch.full((len(vectors),), own if len(vectors) > 1 else 1).double())


def assert_weights(weights: Tensor, vectors: list[Tensor]) -> None:
    """A convex combination for every client, whose mixture stays among the models."""
    assert torch.allclose(weights.sum(1), torch.ones(len(weights)).double())
    assert weights.min() >= 0
    assert weights.max() <= 1 + 1e-12
    u, w = mixed(vectors, weights), torch.stack(vectors)
    assert (u <= w.max(0).values + 1e-5).all()
    assert (u >= w.min(0).values - 1e-5).all()


def test_alpha_falls_in_steps():
    method = run(rounds=0).method
    assert close([method.alpha(t) for t in (1, 30, 31, 60, 61)], [1e4, 1e4, 1e3, 1e3, 1e2])
    slower = run(rounds=0, alpha=8, alpha_decay=0.5, decay_interval=2).method
    assert [slower.alpha(t) for t in (1, 2, 3, 5)] == [8, 8, 4, 2]


def test_alpha_never_falls_below_lr_times_lam():
    method = run(rounds=0, lam=3.0, train={"lr": 0.1, "lr_decay": 0.5}).method
    assert method.alpha(10_000) == pytest.approx(0.3)


def test_the_pull_is_lam_over_alpha_times_the_way_to_the_mixture():
    mine = Simulation(
        "fedamp",
        targets((1.0, 2.0)),
        module=Quadratic((1.0, 2.0)),
        train={**STEP, "lr": 1.0},
        start="local",
        alpha=4,
        lam=1,
    )
    mine.server.clouds, mine.server.cloud_buffers = [torch.tensor([0.5, 2.5]).double()], [torch.zeros(0).double()]
    assert close(mine.round().after_fit[0].params, [1 - 0.125, 2 + 0.125])


def test_rounds_by_hand():
    """Two clients on parabolas, two full steps each; alpha halves after every round."""
    options = dict(alpha=0.5, alpha_decay=0.5, decay_interval=1, sigma=2.0, lam=0.3)
    train = {**STEP, "epochs": 2, "lr": 0.2}
    mine = Simulation("fedamp", targets((1.0,), (-3.0,)), module=Quadratic(), train=train, **options).run(3)
    clouds = [0.0, 0.0]
    for t, seen in enumerate(mine.log, 1):
        trained = []
        for u, b in zip(clouds, (1.0, -3.0), strict=True):
            w = u
            for _ in range(2):
                w -= 0.2 * (w - b + 0.3 / (0.5 * 0.5 ** (t - 1)) * (w - u))
            trained.append(w)
        xi, _ = attention(distances(*[(w,) for w in trained]), 0.5 * 0.5**t, 2.0)
        clouds = (xi @ torch.tensor(trained).double()).tolist()
        assert close([seen.after_fit[i].params for i in (0, 1)], trained)
        assert close([seen.after_agg[i].params for i in (0, 1)], clouds)
        assert seen.traces[0, "weight_self"] == pytest.approx(float(xi[0, 0]), abs=1e-6)
        assert seen.traces[0, "weight/1"] == pytest.approx(float(xi[0, 1]), abs=1e-6)


def test_a_flat_softmax_is_uniform_fedavg():
    mine = run(norm=True, variant="heur", sigma=0, lam=0)
    plain = run("fedavg", norm=True, weighting="uniform")
    for a, b in zip(mine.log, plain.log, strict=True):
        for i in range(3):
            assert torch.allclose(a.after_agg[i].params, b.after_agg[i].params, rtol=0, atol=1e-6)
            assert torch.allclose(a.after_agg[i].buffers, b.after_agg[i].buffers, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"variant": "heur"}])
def test_a_clients_first_step_feels_no_pull(options):
    pulled, free = (run(rounds=1, train=STEP, lam=lam, alpha=1.0, **options) for lam in (5.0, 0.0))
    assert_same(pulled, free, ["after_fit"])
    pulled, free = (run(rounds=1, train={**STEP, "epochs": 2}, lam=lam, alpha=1.0, **options) for lam in (5.0, 0.0))
    assert not equal(pulled.log[0].after_fit[0], free.log[0].after_fit[0])


def test_one_client_mixes_with_nobody():
    for options in ({}, {"variant": "heur", "self_weight": 0.2}):
        assert_same(run(sizes=[20], lam=0, **options), run("local", sizes=[20]))


def test_training_starts_at_the_mixture_or_at_the_own_model():
    cloud, local = (run(rounds=2, start=start, alpha=0.3, sigma=1.0, lam=0) for start in ("cloud", "local"))
    assert_same(run(rounds=1, start="cloud"), run(rounds=1, start="local"), ["after_fit"])
    assert not equal(cloud.log[1].after_fit[0], local.log[1].after_fit[0])
    for seen in local.log:
        assert all(equal(seen.after_agg[i], seen.after_fit[i]) for i in range(3))
    assert all(torch.equal(cloud.log[1].after_agg[i].params, cloud.server.clouds[i]) for i in range(3))
    assert not equal(cloud.log[1].after_agg[0], cloud.log[1].after_fit[0])


@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_the_pull_is_to_the_mixture_wherever_training_starts(lam):
    near, far = (run(rounds=2, start="local", alpha=0.3, sigma=1.0, lam=x) for x in (lam, 4.0))
    assert not equal(near.log[1].after_fit[0], far.log[1].after_fit[0])

    def way(mine):
        models = [mine.log[0].after_fit[i].params for i in range(3)]
        xi, _ = attention(distances_from_products(dot_products(models)), mine.method.alpha(2), 1.0)
        return float((mine.log[1].after_fit[0].params - mixed(models, xi)[0]).norm())

    assert way(far) < way(near)


def stacked(seen) -> Tensor:
    return torch.stack([seen.after_fit[i].params for i in range(3)])


def test_running_statistics_are_mixed_like_parameters_and_counters_stay():
    mine = run(norm=True, rounds=2, alpha=0.3, sigma=1.0)
    seen, xi = mine.log[-1], traced(mine)
    held = torch.stack([seen.after_fit[i].buffers for i in range(3)]).double()
    for i in range(3):
        assert torch.allclose(seen.after_agg[i].buffers, (xi[i] @ held).float(), rtol=0, atol=1e-6)
        assert torch.equal(seen.after_agg[i].counters, seen.after_fit[i].counters)


def test_running_statistics_stay_at_the_client():
    mine = run(norm=True, rounds=2, alpha=0.3, sigma=1.0, bn_stats="local")
    for seen in mine.log:
        assert all(torch.equal(seen.after_agg[i].buffers, seen.after_fit[i].buffers) for i in range(3))
    assert not equal(mine.log[1].after_fit[0], run(norm=True, rounds=2, alpha=0.3, sigma=1.0).log[1].after_fit[0])


def test_the_last_upload_of_everyone_is_mixed_for_everyone():
    mine = run(rounds=3, draw=lambda t: [1] if t == 2 else [0], alpha=0.3, sigma=1.0, lam=0.5)
    first, second, third = mine.log
    initial = mine.initial.params
    held = [third.after_fit[0].params, second.after_fit[1].params, initial]
    xi, _ = attention(distances_from_products(dot_products(held)), 0.3, 1.0)
    for i in range(3):
        assert torch.allclose(third.after_agg[i].params, mixed(held, xi)[i], rtol=0, atol=1e-6)
    assert not torch.equal(third.after_agg[2].params, initial)
    assert not torch.equal(first.after_agg[2].params, second.after_agg[2].params)


def test_who_comes_late_starts_where_it_should():
    for start in ("cloud", "local"):
        mine = run(rounds=1, draw=lambda t: [0, 1], alpha=0.3, sigma=1.0, start=start)
        received = mine.method.receive(mine.client(2, 1))
        expected = mine.server.clouds[2] if start == "cloud" else mine.initial.params
        assert torch.equal(received.params, expected)


def test_defaults_of_sigma_and_self_weight():
    assert_same(run(rounds=2), run(rounds=2, sigma=1e6))
    assert_same(run(rounds=2, variant="heur"), run(rounds=2, variant="heur", sigma=25, self_weight=1 / 3))


def test_images_do_not_count():
    mine = run(sizes=[9, 40, 12], alpha=0.3, sigma=1.0)
    clouds = torch.stack([mine.log[-1].after_agg[i].params for i in range(3)])
    assert torch.allclose(clouds.mean(0), stacked(mine.log[-1]).mean(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"self_weight": 0.5}, "method.self_weight = 0.5"),
        ({"sigma": 0}, "method.sigma = 0"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, said):
    with pytest.raises(ConfigError, match=said) as caught:
        run(rounds=0, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        {"alpha": 0},
        {"alpha_decay": 0},
        {"decay_interval": 0},
        {"lam": -1},
        {"self_weight": 2},
        {"weighting": "samples"},
        {"buffers": "private"},
    ],
)
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ConfigError, match=f"method.{next(iter(option))}"):
        resolve(small("fedamp", **{f"method__{key}": value for key, value in option.items()}))


def test_clipping_is_said():
    usual, eager = run(), run(alpha=1e6, sigma=1e3)
    assert usual.recorder.warnings == []
    (line,) = eager.recorder.warnings
    assert "divided by their sum" in line
    assert traced(eager).diagonal().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "floats"),
    [({}, 79), ({"variant": "heur"}, 79), ({"bn_stats": "local"}, 69), ({"start": "local"}, 69)],
)
def test_bytes(options, floats):
    mine = run(norm=True, **options)
    assert mine.context.layout.size + mine.context.layout.buffer_size == 79
    for seen in mine.log:
        assert set(seen.up.values()) == set(seen.down.values()) == {4 * floats}


def accuracy(mine: Simulation, tests: list[Data]) -> float:
    found = [accuracy_of(mine.learner, mine.log[-1].after_agg[i], d) for i, d in enumerate(tests)]
    return sum(found) / len(found)


def test_groups_find_each_other():
    clients = blobs([15] * 3, seed=3) + blobs([15] * 3, seed=4, shift=1)
    tests = blobs([100] * 3, seed=5) + blobs([100] * 3, seed=6, shift=1)
    train = {"lr": 0.1, "batch_size": 5, "epochs": 3}
    heur = Simulation("fedamp", clients, train=train, variant="heur", sigma=25).run(8)
    xi = traced(heur)
    within, across = xi[:3, :3].sum() + xi[3:, 3:].sum() - xi.diagonal().sum(), xi[:3, 3:].sum() + xi[3:, :3].sum()
    assert float(within / 12) > 1.5 * float(across / 18)
    plain = Simulation("fedavg", clients, train=train).run(8)
    mine = Simulation("fedamp", clients, train=train, alpha=0.5, sigma=1, lam=0.1).run(8)
    assert accuracy(mine, tests) > accuracy(plain, tests) + 0.1
