"""moon: what the specification promises."""

from math import exp, log1p

import pytest
import torch

from fedbench.methods.moon import contrastive_loss
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close

Z = torch.tensor([[1.0, 0], [1, 1]], dtype=torch.float64)
COMMON = torch.tensor([[1.0, 1], [2, 0]], dtype=torch.float64)
PREVIOUS = torch.tensor([[0.0, 1], [1, 3]], dtype=torch.float64)
SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731


@pytest.mark.parametrize(
    ("temperature", "mean", "slope"),
    [
        (0.5, 0.557766, [[0, 0.057281], [-0.342014, 0.342014]]),
        (1.0, 0.596010, [[0, 0.048362], [-0.157765, 0.157765]]),
        (0.1, 1.008484, [[0, 0.001243], [-2.501495, 2.501495]]),
    ],
)
def test_the_term_on_paper(temperature, mean, slope):
    z = Z.clone().requires_grad_()
    loss = contrastive_loss(z, COMMON, PREVIOUS, temperature)
    (found,) = torch.autograd.grad(loss, z)
    assert close(loss, [mean])
    assert close(found, slope)
    assert float((found * Z).sum(1).abs().max()) < 1e-12
    scaled = contrastive_loss(3 * Z, 5 * COMMON, 0.1 * PREVIOUS, temperature)
    assert torch.allclose(scaled, loss)
    assert log1p(exp(-2 / temperature)) <= float(loss.detach()) <= log1p(exp(2 / temperature))


def test_equal_references_do_not_pull_and_zero_features_have_a_gradient():
    z = Z.clone().requires_grad_()
    loss = contrastive_loss(z, COMMON, COMMON, 0.5)
    assert close(loss, [0.693147])
    assert not torch.autograd.grad(loss, z)[0].any()
    zero = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(contrastive_loss(zero, COMMON[:1], PREVIOUS[:1], 0.5), zero)[0].isfinite().all()


def test_first_participations_are_fedavgs():
    make = lambda m, **o: Simulation(m, blobs([9, 17]), module=Mlp(norm=True), **o)  # noqa: E731
    run, plain = make("moon", mu=5.0), make("fedavg")
    assert_same(run.run(1), plain.run(1))
    run.run(1)
    plain.run(1)
    assert not torch.equal(run.log[1].after_fit[0].params, plain.log[1].after_fit[0].params)


def test_one_client_is_local_training():
    make = lambda m: Simulation(m, blobs([17]), train={"precision": "64-true"}).run(3)  # noqa: E731
    assert_near(make("moon"), make("fedavg"))


def test_a_high_temperature_leaves_the_term_without_force():
    train = {"precision": "64-true", "epochs": 1}
    make = lambda m, **o: Simulation(m, blobs([9, 17]), train=train, **o).run(2)  # noqa: E731
    plain = make("fedavg").log[1].after_fit[0].params
    far = [float((make("moon", temperature=t).log[1].after_fit[0].params - plain).norm()) for t in (1e3, 1e4)]
    assert 0 < far[0] < 1e-3
    assert far[0] / far[1] == pytest.approx(10, rel=1e-2)


def test_the_previous_model_is_that_of_the_last_participation():
    run = Simulation("moon", blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME).run(3)
    for client, round in ((0, 2), (1, 1), (2, 2)):
        assert torch.equal(run.states[client].previous.params, run.log[round].after_fit[client].params)
        assert torch.equal(run.states[client].previous.buffers, run.log[round].after_fit[client].buffers)


def test_one_step_by_hand():
    """The second round's first step has the gradient of the loss plus mu times the term."""
    train = {"batch_size": "full", "epochs": 1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}
    run = Simulation("moon", blobs([9, 17]), train=train, mu=2.0).run(2)
    previous, common = run.log[0].after_fit[0].params, run.log[0].after_agg[0].params

    def features(vector):
        body = torch.nn.functional.linear(run.data[0].x, vector[:30].view(5, 6), vector[30:35])
        return body.relu()

    w = common.clone().requires_grad_()
    z = features(w)
    scores = torch.nn.functional.linear(z, w[35:55].view(4, 5), w[55:])
    loss = torch.nn.functional.cross_entropy(scores, run.data[0].labels)
    loss = loss + 2.0 * contrastive_loss(z, features(common), features(previous), 0.5)
    (slope,) = torch.autograd.grad(loss, w)
    assert torch.allclose(run.log[1].after_fit[0].params, common - 0.1 * slope, rtol=0, atol=1e-12)


def test_a_projection_stands_before_the_head_and_travels():
    run = Simulation("moon", blobs([9, 17]), projection=3).run(2)
    layout = run.context.layout
    names = {slot.name: slot.shape for slot in layout.params}
    assert names["head.weight"] == (4, 3)
    assert names["projection.layers.0.weight"] == (5, 5)
    assert names["projection.layers.2.weight"] == (3, 5)
    assert len(run.server.params) == 35 + 16 + 30 + 18
    assert run.learner.features(run.initial, run.data[0]).shape == (9, 3)
    assert not torch.equal(run.server.params[layout.mask("body")][35:], run.initial.params[layout.mask("body")][35:])
