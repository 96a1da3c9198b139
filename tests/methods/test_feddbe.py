"""feddbe: what the specification promises."""

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.methods.feddbe import moving_mean, regulariser
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close
from tests.methods.test_fedrod import THREE, Scaled

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
EXACT = {"precision": "64-true", "momentum": 0.9, "weight_decay": 0.01}
PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1, "precision": "64-true"}
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731


@pytest.mark.parametrize(("mu", "means"), [(0.1, [0.2, 0.58]), (1.0, [2.0, 4.0])])
def test_the_moving_mean_on_paper(mu, means):
    first = moving_mean(exact([0]), exact([[1], [3]]), mu)
    assert close(torch.cat([first, moving_mean(first, exact([[4], [4]]), mu)]), means)


def test_the_regulariser_on_paper():
    z = exact([[0, 4], [4, 8]]).requires_grad_()
    mean = moving_mean(exact([0, 0]), z, 0.5)
    assert close(mean.detach(), [1, 3])
    value = regulariser(mean, exact([0, 1]))
    assert close(value.detach(), [1.25])
    assert close(torch.autograd.grad(value, z)[0], [0.125, 0.25] * 2)


@pytest.mark.parametrize(
    ("epochs", "found", "loss"),
    [
        (1, [1.003654, 0.459210, -0.459210, -0.011430], 0.917817 + 2 * 0.055556),
        (2, [0.9681, 0.42082, -0.42082, -0.020267], 0.917817 + 2 * 0.055556 + 0.885741 + 2 * 0.000003),
    ],
)
def test_two_steps_on_paper(epochs, found, loss):
    train = PLAIN | {"epochs": epochs}
    run = Simulation("feddbe", THREE, module=Scaled(), train=train, classes=2, kappa=2.0, mu=0.5)
    run.server.mean = exact([1])
    run.run(1)
    assert close(run.log[0].after_fit[0].params, found)
    assert run.learner.ledger.losses.item() == pytest.approx(loss, abs=1e-5)


def test_without_both_parts_it_is_fedavg():
    more = {"draw": SOME, "train": EXACT}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    run, plain = make("feddbe", kappa=0, bias_lr=0), make("fedavg")
    for one, other in zip(run.log, plain.log, strict=True):
        for i, model in other.after_agg.items():
            assert torch.allclose(one.after_agg[i].params[:-5], model.params, rtol=0, atol=1e-12)
            assert not one.after_agg[i].params[-5:].any()
    assert torch.allclose(run.server.buffers, plain.server.buffers, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{"init_epochs": 3}, {"init_mean": "full", "init_epochs": 0}, {"mu": 0.1}])
def test_without_the_regulariser_the_first_pass_has_no_effect(options):
    make = lambda **o: Simulation("feddbe", blobs([9, 17]), module=Mlp(norm=True), kappa=0, **o).run(2)  # noqa: E731
    assert_same(make(**options), make())


def test_the_common_mean_is_that_of_all_clients():
    run = Simulation("feddbe", blobs([9, 17, 12]), init_mean="full", init_epochs=0, draw=lambda t: [0], train=EXACT)
    means = [run.learner.features(run.initial, run.data[i]).mean(0) for i in range(3)]
    assert torch.allclose(run.server.mean, (9 * means[0] + 17 * means[1] + 12 * means[2]) / 38)
    kept = run.server.mean.clone()
    run.run(2)
    assert torch.equal(run.server.mean, kept)
    even = Simulation("feddbe", blobs([9, 17, 12]), init_mean="full", init_epochs=0, weighting="uniform", train=EXACT)
    assert torch.allclose(even.server.mean, sum(means) / 3)
    running = Simulation("feddbe", blobs([9, 17, 12]), train=PLAIN)
    assert torch.allclose(
        running.server.mean, run.server.mean
    )  # one full batch, whose features are those before its step


def test_the_pass_is_counted_and_its_models_dropped():
    run = Simulation("feddbe", blobs([9, 17]), module=Mlp(norm=True), draw=lambda t: [0])
    assert run.record.bytes_down == 2 * (4 * 79 + 4 * 5)
    assert run.record.bytes_up == 2 * 4 * 5
    assert torch.equal(run.server.params, run.initial.params[:-5])
    run.run(1)
    assert set(run.log[0].up.values()) == set(run.log[0].down.values()) == {4 * 79}


def test_the_vector_makes_plain_steps_and_stays_at_its_client():
    train = PLAIN | {"momentum": 0.9, "weight_decay": 0.1, "lr": 1e-9, "epochs": 2}
    run = Simulation("feddbe", blobs([9, 17]), train=train, kappa=0, bias_lr=0.3).run(1)
    c = torch.zeros(5, dtype=torch.float64)
    for _ in range(2):
        model = run.initial.replace(params=torch.cat([run.initial.params[:-5], c]))
        c = c - 0.3 * run.learner.gradient(model, (run.data[0].x, run.data[0].labels))[1][-5:]
    assert torch.allclose(run.log[0].after_fit[0].params[-5:], c, atol=1e-6)
    weight, bias = c.new_tensor(run.initial.params[35:55].tolist()).view(4, 5), run.initial.params[55:59]
    features = run.learner.features(run.initial, run.data[0])
    expected = features @ weight.T + bias + weight @ c
    assert torch.allclose(run.learner.logits(run.log[0].after_agg[0], run.data[0]), expected, atol=1e-6)
    common = run.method.global_model(run.server, run.initial)
    assert not common.params[-5:].any()
    assert torch.equal(run.log[0].after_agg[0].params[:-5], common.params[:-5])
    assert torch.equal(run.states[0].params, run.log[0].after_fit[0].params[-5:])


def test_the_regulariser_draws_features_to_the_common_mean():
    def far(kappa):
        run = Simulation("feddbe", blobs([20, 30]), train={"lr": 0.05}, kappa=kappa, rounds=20).run(20, evaluate=False)
        found = [run.learner.features(run.log[-1].after_fit[i], run.data[i]).mean(0) for i in (0, 1)]
        return sum(float((mean - run.server.mean).norm()) for mean in found)

    assert far(5.0) < far(1.0) < far(0.0)


def test_moving_means_start_anew_in_every_fit():
    run, again = (Simulation("feddbe", blobs([9, 17]), train=EXACT, mu=0.3).run(2) for _ in range(2))
    assert_near(run, again)
    assert "bias_memory.vector" in run.learner.flat.state_dict(run.log[-1].after_agg[0])


def test_other_optimisers_and_no_mean_are_refused():
    with pytest.raises(ConfigError, match=r"train\.optimizer = adam"):
        Simulation("feddbe", blobs([9]), train={"optimizer": "adam"})
    with pytest.raises(ConfigError, match="set init_mean to full"):
        Simulation("feddbe", blobs([9]), init_epochs=0)
