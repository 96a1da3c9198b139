"""apfl: what the specification promises."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning import LightningModule
from torch import nn

from fedbench.module.weights import Weights
from tests.methods.simulator import (
    Mlp,
    Product,
    Quadratic,
    Simulation,
    accuracy_of,
    blobs,
    close,
    equal,
    targets,
)

STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1}
SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
V, W, G = (1.0, -1.0, 0.5), (0.0, 0.5, 0.5), (0.2, -0.4, 0.6)


class Dropping(Mlp):
    """With BatchNorm and Dropout."""

    def __init__(self) -> None:
        super().__init__(norm=True)
        self.body.append(nn.Dropout(0.4))


class Slope(Quadratic):
    """A loss whose gradient is a sample's x, wherever one stands."""

    def training_step(self, batch):
        return (self.w * batch[0]).sum(1).mean()


class Linear(LightningModule):
    """Class scores that are linear in the parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(x)

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)


def one_round(gradient=G, own=V, common=W, alpha=0.25, module=Slope, train=None, **options):
    """One client whose personal vector stands at `own` while the global model stands at `common`."""
    train = STEP | (train or {})
    run = Simulation("apfl", targets(gradient), module=module((0.0,) * len(own), (1.0,)), train=train, **options)
    none = torch.zeros(0, dtype=run.learner.dtype)
    vector = torch.tensor(own, dtype=run.learner.dtype)
    run.keep(0, personal=Weights(vector, none, none.long()), alpha=alpha)
    run.server.params = torch.tensor(common, dtype=run.learner.dtype)
    return run.run(1)


def negated(values):
    return tuple(-value for value in values)


def alphas(run):
    return [{i: seen.traces[i, "alpha"] for i in seen.uploads} for seen in run.log]


@pytest.mark.parametrize(
    ("gradient", "options", "alpha"),
    [
        (G, {}, 0.17),
        (G, {"alpha_decay": 0.02}, 0.1695),
        (G, {"alpha_lr": 1.0}, 0.0),
        (negated(G), {"alpha_lr": 1.0}, 1.0),
        (G, {"alpha_lr": 0.0}, 0.25),
        (G, {"alpha_update": "off"}, 0.25),
        (G, {"mix_with": "updated"}, 0.1644),
    ],
)
def test_a_step_of_all_three(gradient, options, alpha):
    run = one_round(gradient, **options)
    assert close(run.states[0].alpha, [alpha])
    assert run.log[0].traces == {(0, "alpha"): run.states[0].alpha}
    own = [v - 0.1 * 0.25 * g for v, g in zip(V, gradient, strict=True)]
    common = [w - 0.1 * g for w, g in zip(W, gradient, strict=True)]
    if gradient == G:
        assert close(own, [0.995, -0.99, 0.485])
    assert close(run.states[0].personal.params, own)
    assert close(run.server.params, common)
    mixed = [alpha * v + (1 - alpha) * w for v, w in zip(own, common, strict=True)]
    assert close(run.log[0].after_fit[0].params, mixed)
    assert close(run.log[0].after_agg[0].params, mixed)


@pytest.mark.parametrize(("mix_with", "mixed"), [("previous", (0.25, 0.125, 0.5)), ("updated", (0.25, 0.0875, 0.4625))])
def test_the_gradient_is_that_at_the_mixture(mix_with, mixed):
    """Of half the squared distance to 0, whose gradient is the point itself."""
    run = one_round((0.0, 0.0, 0.0), module=Quadratic, alpha_update="off", mix_with=mix_with)
    assert close(run.states[0].personal.params, [v - 0.1 * 0.25 * g for v, g in zip(V, mixed, strict=True)])


@given(
    point=st.lists(st.tuples(*[st.floats(-3, 3)] * 3), min_size=3, max_size=3),
    alpha=st.floats(0, 1),
    update=st.sampled_from(["round", "step"]),
    rate=st.floats(0, 5),
)
@settings(max_examples=40)
def test_alpha_stays_in_its_range_and_the_mixture_between_both(point, alpha, update, rate):
    own, common, target = point
    run = one_round(target, own, common, alpha, Quadratic, {"epochs": 3}, alpha_update=update, alpha_lr=rate)
    assert 0 <= run.states[0].alpha <= 1
    v, w = run.states[0].personal.params, run.server.params
    mixed = run.log[0].after_agg[0].params
    assert bool((mixed >= torch.minimum(v, w) - 1e-6).all())
    assert bool((mixed <= torch.maximum(v, w) + 1e-6).all())


@pytest.mark.parametrize("update", ["round", "step"])
def test_alpha_moves_once_a_round_or_in_every_step(update):
    run = one_round(train={"epochs": 3}, alpha_update=update)
    v, w, g, alpha = (torch.tensor(x, dtype=torch.float64) for x in (V, W, G, 0.25))
    for t in range(3):
        slope, old = g @ (v - w), alpha
        if update == "step" or t == 0:
            alpha = (alpha - 0.1 * slope).clamp(0, 1)
        v, w = v - 0.1 * old * g, w - 0.1 * g
    assert close(run.states[0].alpha, [float(alpha)])
    assert close(run.states[0].personal.params, v.tolist())


@pytest.mark.parametrize("mix_with", ["previous", "updated"])
def test_all_personal_it_is_local_training(mix_with):
    """But for the counters of BatchNorm, which are the global model's."""
    train = {"batch_size": 4, "momentum": 0.9, "keep_optimizer": True, "lr_decay": 0.5}
    apfl, local = (
        Simulation(m, blobs([9, 17, 12]), module=Dropping(), train=train, draw=SOME, **o).run(3)
        for m, o in (("apfl", {"alpha": 1, "alpha_update": "off", "mix_with": mix_with}), ("local", {}))
    )
    for one, other in zip(apfl.log, local.log, strict=True):
        for point in ("after_fit", "after_agg"):
            for i, weights in getattr(other, point).items():
                assert torch.equal(getattr(one, point)[i].params, weights.params)
                assert torch.equal(getattr(one, point)[i].buffers, weights.buffers)
    assert all(torch.equal(apfl.states[i].personal.counters, local.log[-1].after_agg[i].counters) for i in apfl.states)


def test_all_personal_scores_are_trained_as_locally():
    make = lambda m, **o: Simulation(m, blobs([9, 17]), module=Dropping(), **o).run(3)  # noqa: E731
    apfl, local = make("apfl", alpha=1, alpha_update="off", mixing="logits"), make("local")
    assert all(equal(apfl.states[i].personal, local.log[-1].after_agg[i]) for i in (0, 1))


class Searching(Mlp):
    """Whose optimiser asks for several gradients in a step, and moves in between."""

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)


@pytest.mark.parametrize("mixing", ["parameters", "logits"])
def test_an_optimiser_that_moves_between_the_gradients_of_a_step(mixing):
    runs = []
    for method, options in (("apfl", {"alpha": 1, "alpha_update": "off", "mixing": mixing}), ("local", {})):
        runs.append(Simulation(method, blobs([9, 17]), module=Searching(), train={"batch_size": "full"}, **options))
        runs[-1].learner.engine.optimizer = "module"
    apfl, local = (run.run(2) for run in runs)
    for i in (0, 1):
        assert torch.equal(apfl.states[i].personal.params, local.log[-1].after_agg[i].params)
        assert not torch.equal(apfl.states[i].personal.params, apfl.initial.params)


@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 0.9}, {"alpha_update": "step", "alpha_lr": 3.0}, {"mixing": "logits"}, {"mix_with": "updated"}],
)
def test_the_global_model_does_not_depend_on_alpha(options):
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Dropping(), draw=SOME, **o).run(4)  # noqa: E731
    run, plain = make("apfl", **options), make("fedavg", weighting="uniform")
    for one, other in zip(run.log, plain.log, strict=True):
        for i, upload in other.uploads.items():
            assert all(torch.equal(one.uploads[i].tensors[n], upload.tensors[n]) for n in upload.tensors)
    assert equal(
        run.method.global_model(run.server, run.initial), plain.method.global_model(plain.server, plain.initial)
    )


@pytest.mark.parametrize("mix_with", ["previous", "updated"])
@pytest.mark.parametrize("update", ["round", "step"])
def test_mixing_scores_of_a_linear_model_is_mixing_its_parameters(mix_with, update):
    train = {"precision": "64-true", "momentum": 0.5, "batch_size": 4}
    parameters, logits = (
        Simulation(
            "apfl", blobs([9, 17]), module=Linear(), train=train, mixing=m, mix_with=mix_with, alpha_update=update
        ).run(3)
        for m in ("parameters", "logits")
    )
    for i in (0, 1):
        one, other = parameters.states[i], logits.states[i]
        assert one.alpha == pytest.approx(other.alpha, abs=1e-10)
        assert one.alpha != 0.5
        assert torch.allclose(one.personal.params, other.personal.params, rtol=0, atol=1e-10)
        data = parameters.data[i]
        scores = parameters.learner.logits(parameters.log[-1].after_agg[i], data)
        assert torch.allclose(scores, logits.log[-1].after_agg[i].scores(data), rtol=0, atol=1e-10)


def test_mixed_scores_step_along_their_derivatives():
    """Against automatic differentiation of the mixed loss by v and alpha."""
    clients, train = blobs([12]), STEP | {"precision": "64-true"}
    run = Simulation("apfl", clients, module=Mlp(), train=train, mixing="logits", alpha=0.3)
    start, stream = run.initial, torch.Generator().manual_seed(0)
    v = start.params + 0.3 * torch.randn(len(start.params), dtype=torch.float64, generator=stream)
    run.keep(0, personal=start.replace(params=v), alpha=0.3)
    x, y = run.data[0].x, run.data[0].labels
    run.run(1)

    def scores(vector):
        a, b, c, d = (vector[i:j] for i, j in ((0, 30), (30, 35), (35, 55), (55, 59)))
        return torch.relu(x @ a.view(5, 6).T + b) @ c.view(4, 5).T + d

    vector, alpha = v.clone().requires_grad_(), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    F.cross_entropy(alpha * scores(vector) + (1 - alpha) * scores(start.params), y).backward()
    assert torch.allclose(run.states[0].personal.params, v - 0.1 * vector.grad, rtol=0, atol=1e-12)
    assert run.states[0].alpha == pytest.approx(0.3 - 0.1 * float(alpha.grad), abs=1e-12)


def test_mixed_scores_are_those_of_two_models_with_statistics_of_their_own():
    run = Simulation("apfl", blobs([9, 17]), module=Mlp(norm=True), mixing="logits").run(2)
    for i in (0, 1):
        own, alpha, data = run.states[i].personal, run.states[i].alpha, run.data[i]
        common = run.method.global_model(run.server, run.initial)
        expected = alpha * run.learner.logits(own, data) + (1 - alpha) * run.learner.logits(common, data)
        assert torch.equal(run.log[-1].after_agg[i].scores(data), expected)
        assert not torch.equal(own.buffers, common.buffers)


def test_both_points_mix_the_own_or_the_averaged_copy():
    run = Simulation("apfl", blobs([9, 17, 12]), module=Mlp(norm=True), draw=lambda t: [0, 1], alpha=0.3).run(2)
    common = run.method.global_model(run.server, run.initial)
    for i in (0, 1):
        own, alpha = run.states[i].personal, run.states[i].alpha
        upload = run.log[1].uploads[i]
        for seen, copy in ((run.log[1].after_fit[i], upload), (run.log[1].after_agg[i], common)):
            for part in ("params", "buffers"):
                assert torch.equal(getattr(seen, part), torch.lerp(getattr(copy, part), getattr(own, part), alpha))
    absent, start = run.log[1].after_agg[2], run.initial
    assert torch.equal(absent.params, torch.lerp(common.params, start.params, 0.3))


def test_who_sits_out_keeps_the_personal_vector_and_sees_the_new_global_model():
    run = Simulation("apfl", blobs([9, 17, 12]), module=Mlp(norm=True), draw=lambda t: [0, 1] if t == 1 else [1]).run(3)
    alone = Simulation("apfl", blobs([9, 17, 12]), module=Mlp(norm=True), draw=lambda t: [0, 1] if t == 1 else [1]).run(
        1
    )
    assert equal(run.states[0].personal, alone.states[0].personal)
    assert run.states[0].alpha == alone.states[0].alpha
    assert not torch.equal(run.log[2].after_agg[0].params, run.log[0].after_agg[0].params)


def test_alpha_cannot_move_in_round_one_but_can_later():
    first, second = alphas(Simulation("apfl", blobs([9, 17])).run(2))
    assert set(first.values()) == {0.5}
    assert 0.5 not in second.values()
    by_step = alphas(Simulation("apfl", blobs([9, 17]), alpha_update="step").run(1))
    assert 0.5 not in by_step[0].values()


def test_rates_of_alpha_decay():
    train = {"lr_decay": 0.5, "lr": 0.1}
    for rate, options in ((0.1, {}), (0.3, {"alpha_lr": 0.3})):
        run = Simulation("apfl", targets(G), module=Slope((0.0,) * 3), train=STEP | train, alpha_decay=1.0, **options)
        run.run(1)
        assert close(run.states[0].alpha, [0.5 - rate * 0.5])
        v, w, alpha = run.states[0].personal.params, run.server.params, run.states[0].alpha
        slope = float(torch.tensor(G) @ (v - w))
        run.round()
        assert close(run.states[0].alpha, [alpha - rate * 0.5 * (slope + alpha)])


def test_momentum_and_decay_act_on_both_models_apart():
    train = {"momentum": 0.5, "weight_decay": 0.1, "keep_optimizer": True}
    run = Simulation("apfl", targets(G), module=Slope((1.0,) * 3), train=STEP | train, alpha=0.25, alpha_update="off")
    run.run(3)
    v = w = torch.ones(3)
    mv = mw = torch.zeros(3)
    for _ in range(3):
        mw, mv = 0.5 * mw + torch.tensor(G) + 0.1 * w, 0.5 * mv + 0.25 * torch.tensor(G) + 0.1 * v
        w, v = w - 0.1 * mw, v - 0.1 * mv
    assert close(run.server.params, w.tolist())
    assert close(run.states[0].personal.params, v.tolist())


def test_bytes_are_those_of_the_global_model():
    run = Simulation("apfl", blobs([9, 17]), module=Mlp(norm=True)).run(2)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {4 * (69 + 10)} for seen in run.log)


def test_alpha_rises_at_the_client_that_is_different():
    clients = blobs([60], seed=3) + blobs([60], seed=4) + blobs([60], seed=5) + blobs([60], seed=6, shift=2)
    tests = blobs([200], seed=7) + blobs([200], seed=8, shift=2)
    run = Simulation("apfl", clients, module=Mlp(), train={"epochs": 2}).run(8)
    last = alphas(run)[-1]
    assert last[3] == max(last.values())
    assert last[3] > 0.5
    accuracy = lambda weights, test: accuracy_of(run.learner, weights, test)  # noqa: E731
    common = run.method.global_model(run.server, run.initial)
    assert accuracy(run.log[-1].after_agg[3], tests[1]) > accuracy(common, tests[1]) + 0.2


def test_both_models_of_a_newcomer_start_at_the_global_one():
    run = Simulation("apfl", targets(1.0), module=Product(), train=STEP)
    run.server.params = torch.tensor([2.0, 0.5])  # with slopes -0.5 and -2
    assert close(run.joined(targets(1.0)[0], 0).params, [2, 0.5])
    # w moves by the whole step and v by half of it; their mean by three quarters.
    assert close(run.joined(targets(1.0)[0], 1).params, [2.0375, 0.65])
