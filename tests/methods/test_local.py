"""local: what the specification promises."""

import pytest

from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_same, blobs, close, equal, targets

STEPS = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}


def path(rounds, **train):
    run = Simulation("local", targets(2.0), module=Quadratic(), train={**STEPS, **train}).run(rounds)
    return [float(seen.after_fit[0].params) for seen in run.log]


def test_training_goes_on_where_it_stopped():
    assert close(path(4, epochs=1), [0.2, 0.38, 0.542, 0.6878])
    assert close(path(2, epochs=2), [0.38, 0.6878])


def test_momentum_is_dropped_every_round_or_kept():
    assert close(path(2, epochs=2, momentum=0.5), [0.48, 0.8448])
    assert close(path(4, epochs=1, momentum=0.5, keep_optimizer=True), [0.2, 0.48, 0.772, 1.0408])


def test_rounds_with_a_kept_optimizer_are_one_long_run():
    train = {"batch_size": "full", "shuffle": False, "momentum": 0.5, "keep_optimizer": True}
    split = Simulation("local", blobs([9, 12]), train={**train, "epochs": 2}).run(3)
    whole = Simulation("local", blobs([9, 12]), train={**train, "epochs": 6}).run(1)
    assert all(equal(split.log[-1].after_fit[i], whole.log[-1].after_fit[i]) for i in (0, 1))


@pytest.mark.parametrize("norm", [False, True])
def test_clients_know_nothing_of_each_other_and_send_nothing(norm):
    draw = lambda t: [0, 1] if t < 3 else [0, 1, 2]  # noqa: E731
    clients = blobs([17, 9, 13])
    run = Simulation("local", clients, module=Mlp(norm), draw=draw).run(3)
    clients[1] = blobs([30], seed=5)[0]
    other = Simulation("local", clients, module=Mlp(norm), draw=draw).run(3)
    for one, two in zip(run.log, other.log, strict=True):
        assert all(equal(one.after_fit[i], two.after_fit[i]) for i in one.after_fit if i != 1)
        assert set(one.up.values()) == set(one.down.values()) == {0}


def test_both_points_are_the_same_and_an_absent_client_waits():
    run = Simulation("local", blobs([17, 9, 13]), module=Mlp(norm=True), draw=lambda t: [0, 1] if t == 1 else [0]).run(
        2
    )
    for seen in run.log:
        assert all(equal(seen.after_fit[i], seen.after_agg[i]) for i in seen.after_fit)
    assert equal(run.log[1].after_agg[1], run.log[0].after_fit[1])
    assert equal(run.log[1].after_agg[2], run.initial)
    assert run.method.after_fit == "after_agg"
    assert run.method.global_model(run.server, run.initial) is None


def test_batches_are_those_of_fedavg():
    runs = [Simulation(m, blobs([17, 9])).run(1) for m in ("local", "fedavg")]
    assert_same(*runs, points=["after_fit"])
