"""feddyn: what the specification promises."""

import pytest
import torch

from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close, targets
from tests.methods.test_scaffold import PLAIN, TwoCurves

EXACT = {"precision": "64-true", "momentum": 0.5, "weight_decay": 0.01}


def pair(rounds, repeat=None, draw=None, **options):
    """F_i = a_i (w - b_i)^2 / 2 with a = (1, 2), b = (1, -1)."""
    data = targets((1.0, 1.0), (-1.0, 2.0), repeat=repeat)
    more = {"draw": draw} if draw else {}
    options = {"alpha": 1.0, **options}
    run = Simulation("feddyn", data, module=TwoCurves(), train=PLAIN, rounds=rounds, **more, **options)
    return run.run(rounds, evaluate=False)


TABLE = [
    ([0.18, -0.34], -0.08, -0.08, -0.16, [0.18, -0.34]),
    ([0.0164, -0.3878], -0.1857, -0.1057, -0.2914, [0.3564, -0.5678]),
    ([-0.1231, -0.435798], -0.279449, -0.093749, -0.373198, [0.5247, -0.712198]),
]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_the_numbers_of_three_rounds(rounds):
    trained, mean, drift, w, own = TABLE[rounds - 1]
    run = pair(rounds, weighting="uniform")
    assert close(torch.cat([run.log[-1].after_fit[i].params for i in (0, 1)]), trained)
    found = torch.cat([run.server.mean, run.server.drift, run.server.params])
    assert close(found, [mean, drift, w])
    assert close(torch.cat([run.states[i].drift for i in (0, 1)]), own)


def test_it_settles_at_the_common_minimum():
    assert close(pair(100).server.params, [-1 / 3])
    run = pair(2, repeat=[1, 3])
    assert close(torch.cat([run.log[-1].after_fit[i].params for i in (0, 1)]), [-0.034433, -0.42203])
    assert close(run.server.params, [-0.36813])
    assert close(pair(100, repeat=[1, 3]).server.params, [-5 / 7], digits=5)


def test_a_small_alpha_swings():
    for rounds, w in ((1, -0.1699), (3, -0.4416), (11, -0.2519), (300, -0.3195)):
        assert close(pair(rounds, alpha=0.01).server.params, [w], digits=4)


def test_absent_clients_keep_their_drift():
    for t, (w, drift) in enumerate([(0.27, 0.09), (-0.2877, -0.1259), (-0.114521, -0.026207)], 1):
        run = pair(t, draw=lambda t: [(t + 1) % 2])
        assert close(torch.cat([run.server.params, run.server.drift]), [w, drift])
    assert close(torch.cat([run.states[i].drift for i in (0, 1)]), [0.379386, -0.4318])


def test_round_one_is_fedprox_and_its_mean_extrapolated():
    make = lambda m, **o: Simulation(m, blobs([9, 17]), module=Mlp(norm=True), weighting="uniform", **o).run(1)  # noqa: E731
    run, prox = make("feddyn", alpha=0.3, evaluate="active"), make("fedprox", mu=0.3)
    assert_same(run, prox)
    assert torch.allclose(run.server.params, 2 * prox.server.params - run.initial.params, atol=1e-6)


def test_equal_clients_have_one_alpha():
    make = lambda weighting: Simulation("feddyn", blobs([9, 9]), weighting=weighting, alpha=0.5).run(3)  # noqa: E731
    assert_same(make("samples"), make("uniform"))


def test_the_servers_drift_is_the_mean_of_all_and_what_is_evaluated_changes_nothing():
    make = lambda **o: Simulation("feddyn", blobs([9, 17, 12]), train=EXACT, draw=lambda t: [t % 3, (t + 1) % 3], **o)  # noqa: E731
    run, active = make().run(4), make(evaluate="active").run(4)
    assert torch.allclose(run.server.drift, sum(state.drift for state in run.states.values()) / 3, atol=1e-14)
    assert_same(run, active, ["after_fit"])
    assert torch.equal(active.log[-1].after_agg[0].params, active.server.mean)
    assert torch.equal(run.log[-1].after_agg[0].params, run.server.params)
    assert torch.equal(active.method.global_model(active.server, active.initial).params, active.server.mean)
    assert run.log[-1].up == active.log[-1].up
    assert run.log[-1].down == active.log[-1].down


def test_one_client_is_pulled_to_its_own_last_model():
    run = Simulation("feddyn", blobs([17]), train=EXACT, alpha=0.7).run(3)
    drift = run.states[0].drift
    assert torch.allclose(run.server.params - drift, run.log[-1].after_fit[0].params, atol=1e-12)


def test_running_statistics_are_averaged_plainly():
    run = Simulation("feddyn", blobs([9, 17]), module=Mlp(norm=True), train=EXACT).run(2)
    mean = sum(run.log[-1].after_fit[i].buffers for i in (0, 1)) / 2
    assert torch.allclose(run.server.buffers, mean, atol=1e-12)
    assert_near(run, run)
