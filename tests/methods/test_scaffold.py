"""scaffold: what the specification promises."""

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.methods.scaffold import velocity_weights, whole_gradient
from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_near, assert_same, blobs, close, targets

PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 2, "precision": "64-true"}
EXACT = {"precision": "64-true", "momentum": 0, "weight_decay": 0.01, "epochs": 2}


class TwoCurves(Quadratic):
    """The curvature is the second number of a sample, and its minimum the first."""

    def training_step(self, batch):
        x, _ = batch
        return (x[:, 1] * (self.w[0] - x[:, 0]) ** 2).mean() / 2


def pair(rounds, repeat=None, draw=None, train=None, **options):
    """F_i = a_i (w - b_i)^2 / 2 with a = (1, 2), b = (1, -1)."""
    data = targets((1.0, 1.0), (-1.0, 2.0), repeat=repeat)
    more = {"draw": draw} if draw else {}
    return Simulation(
        "scaffold", data, module=TwoCurves(), train=PLAIN | (train or {}), rounds=rounds, **more, **options
    ).run(rounds, evaluate=False)


TABLE = [
    ([0.19, -0.36], -0.085, 0.425, [-0.95, 1.8], -0.085, 0.5),
    ([-0.1401, -0.1669], -0.1535, 0.3425, [-1.0995, 1.7845], -0.154125, 0.3725),
    ([-0.208315, -0.198680], -0.203498, 0.249988, [-1.167925, 1.6679], -0.204028, 0.268812),
]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_the_numbers_of_three_rounds(rounds):
    trained, w, c, own, other_w, other_c = TABLE[rounds - 1]
    run = pair(rounds)
    assert close(torch.cat([run.log[-1].after_fit[i].params for i in (0, 1)]), trained)
    assert close(run.server.params, [w])
    assert close(run.server.control, [c])
    assert close(torch.cat([run.states[i].control for i in (0, 1)]), own)
    first = pair(rounds, control="I")
    assert close(first.server.params, [other_w])
    assert close(first.server.control, [other_c])


def test_both_options_reach_the_common_minimum():
    for control in ("II", "I"):
        run = pair(60, control=control)
        assert close(run.server.params, [-1 / 3])
        assert close(torch.cat([run.states[i].control for i in (0, 1)]), [-4 / 3, 4 / 3])
    assert close(pair(60, repeat=[1, 3], weighting="samples").server.params, [-5 / 7])
    assert close(pair(2, repeat=[1, 3], weighting="samples").server.params, [-0.379513])
    assert close(pair(2, global_lr=0.5).server.params, [-0.082594])


def test_absent_clients_keep_their_controls():
    rounds = [[0.19, -0.475], [-0.1529, 0.61975], [-0.232101, 0.507879]]
    for t, (w, c) in enumerate(rounds, 1):
        run = pair(t, draw=lambda t: [(t + 1) % 2])
        assert close(run.server.params, [w])
        assert close(run.server.control, [c])
    assert close(torch.cat([run.states[i].control for i in (0, 1)]), [-1.173743, 2.1895])


def test_momentum_divides_by_the_weights_of_all_gradients(monkeypatch):
    assert velocity_weights(3, 0.5) == 4.25
    assert velocity_weights(3, 0.0) == 3
    train = {"lr": 0.01, "momentum": 0.9, "epochs": 10}
    assert close(pair(60, train=train).server.params, [-1 / 3])
    monkeypatch.setattr("fedbench.methods.scaffold.velocity_weights", lambda steps, momentum: steps)
    assert abs(float(pair(40, train=train).server.params)) > 1e10


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_round_one_is_fedavg(weighting):
    more = {"train": EXACT, "weighting": weighting}
    make = lambda m: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more)  # noqa: E731
    assert_same(make("scaffold").run(1), make("fedavg").run(1))


def test_one_client_is_local_training():
    make = lambda m, **o: Simulation(m, blobs([17]), train=EXACT, **o).run(4)  # noqa: E731
    assert_near(make("scaffold"), make("fedavg"))


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_one_full_step_a_round_is_fedavg_with_both_options(weighting):
    train = EXACT | {"batch_size": "full", "epochs": 1}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), train=train, weighting=weighting, **o).run(4)  # noqa: E731
    plain = make("fedavg")
    for control in ("II", "I"):
        assert_near(make("scaffold", control=control), plain, ["after_agg"])


def test_equal_clients_are_fedavg():
    train = EXACT | {"batch_size": "full"}
    make = lambda m: Simulation(m, blobs([9]) * 3, train=train).run(4)  # noqa: E731
    assert_near(make("scaffold"), make("fedavg"))


@pytest.mark.parametrize("options", [{}, {"weighting": "samples"}, {"control": "I"}])
def test_the_servers_control_is_the_mean_of_all(options):
    sizes, draw = [9, 17, 12], lambda t: [t % 3, (t + 1) % 3]
    run = Simulation("scaffold", blobs(sizes), train=EXACT, draw=draw, **options).run(4, evaluate=False)
    weights = [n / sum(sizes) for n in sizes] if options.get("weighting") == "samples" else [1 / 3] * 3
    mean = sum(weight * state.control for weight, state in zip(weights, run.states.values(), strict=True))
    assert torch.allclose(run.server.control, mean, rtol=0, atol=1e-14)


def test_bytes_are_those_of_two_vectors():
    run = Simulation("scaffold", blobs([9, 17]), module=Mlp(norm=True)).run(2)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {4 * (2 * 69 + 10)} for seen in run.log)


def test_the_rate_is_that_of_the_round_and_weight_decay_is_in_the_control():
    one, two = (pair(t, train={"lr_decay": 0.5, "weight_decay": 0.1, "epochs": 1}, control="I") for t in (1, 2))
    assert close(torch.cat([one.states[i].control for i in (0, 1)]), [-1, 2])
    w = float(one.server.params)
    assert close(torch.cat([two.states[i].control for i in (0, 1)]), [w - 1 + 0.1 * w, 2 * (w + 1) + 0.1 * w])
    same = pair(2, train={"lr_decay": 0.5, "weight_decay": 0.1, "epochs": 1}, control="II")
    assert torch.allclose(same.states[0].control, two.states[0].control, atol=1e-12)


@pytest.mark.parametrize("train", [{"optimizer": "adam"}, {"keep_optimizer": True, "momentum": 0.9}])
def test_moves_that_are_no_sums_of_gradients_are_refused(train):
    with pytest.raises(ConfigError, match=r"train\.(optimizer|keep_optimizer) = "):
        Simulation("scaffold", blobs([9]), train=train)


def test_gradients_at_the_received_model_go_with_any_optimiser():
    assert Simulation("scaffold", blobs([9]), train={"optimizer": "adam"}, control="I").run(1).log


def test_the_gradient_of_all_images_takes_them_in_stored_order():
    run = Simulation("scaffold", blobs([17]), module=Mlp(norm=True), control="I")  # BatchNorm sees what is in a batch
    first, second = (whole_gradient(run.client(0, round), run.initial) for round in (1, 2))
    assert torch.equal(first, second)
