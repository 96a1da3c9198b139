"""gpfl: what the specification promises."""

from math import exp, log

import pytest
import torch

from fedbench.methods.gpfl import Guide, angle_loss, magnitude, open_valve
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close, equal

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
ROWS = exact([[3, 4], [0, 2], [1, 0]])
LABELS = torch.tensor([0, 1])
PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}


def test_the_terms_on_paper():
    z, rows = exact([[1, 0], [2, 2]]).requires_grad_(), ROWS.clone().requires_grad_()
    loss = angle_loss(z, rows, LABELS)
    assert close(loss.detach(), [1.157053])
    slopes = torch.autograd.grad(loss, (z, rows))
    assert close(slopes[0], [0, -0.178202, 0.081338, -0.081338])
    assert close(slopes[1], [-0.038439, 0.028830, -0.078518, 0, 0, 0.106271])
    for form, value, slope in (
        ("batch", 4.898979, [-0.408248, -0.816497, 0.408248, 0]),
        ("sample", 3.236068, [-0.223607, -0.447214, 0.5, 0]),
    ):
        found = magnitude(z - ROWS[LABELS], form)
        assert close(found.detach(), [value])
        assert close(torch.autograd.grad(found, z)[0], slope)
        assert not torch.autograd.grad(magnitude(z - z.detach(), form), z)[0].any()
    same = angle_loss(exact([[1, 1]]), exact([[2, 2], [1, 1], [5, 5]]), torch.tensor([1]))
    assert close(same, [log(3)])
    least = angle_loss(exact([[1, 0]]), exact([[1, 0], *[[-1, 0]] * 9]), torch.tensor([0]))
    assert close(least, [log(1 + 9 * exp(-2))])


def test_added_layers_are_drawn_in_double_precision():
    run = Simulation("gpfl", blobs([9]), train=PLAIN)
    stream, bound = torch.Generator().manual_seed(0), 1 / 5**0.5
    assert torch.equal(
        run.learner.flat.module.guide.embeddings, torch.randn(4, 5, generator=stream, dtype=torch.float64)
    )
    for branch in ("gamma", "beta"):
        for name, shape in (("weight", (5, 5)), ("bias", (5,))):
            drawn = (2 * torch.rand(shape, generator=stream, dtype=torch.float64) - 1) * bound
            found = run.learner.flat.module.get_parameter(f"guide.{branch}.0.{name}")
            assert torch.allclose(found, drawn, rtol=0, atol=1e-15)
    assert torch.get_default_dtype() == torch.float32


def test_the_valve_on_paper():
    guide = Guide(3, 2, valve=True, seed=0).double()
    with torch.no_grad():
        guide.gamma[0].weight.copy_(torch.eye(2))
        guide.gamma[0].bias.copy_(exact([0, 1]))
        guide.gamma[2].weight.copy_(exact([2, 1]))
        guide.gamma[2].bias.copy_(exact([0.5, -0.5]))
        assert close(guide.gamma(exact([3, -2])), [2.499996, -1.499998])
        assert close(guide.gamma(exact([0, 0])), [-1.499960, 0.499980])
    assert close(open_valve(exact([[1, 2]]), exact([1.5, -0.5]), exact([0.25, 0.5])), [1.75, 0])
    count = sum(p.numel() for p in Guide(10, 512, True, 0).parameters())
    assert count == 527360 + 5120
    assert sum(p.numel() for p in Guide(3, 5, True, 0).parameters()) == 80 + 15


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_without_valve_and_guidance_it_is_fedper(mu):
    more = {"draw": SOME, "train": {"precision": "64-true", "momentum": 0.9, "weight_decay": 0.01}}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    run, per = make("gpfl", cov=False, guidance="none", mu=mu), make("fedper")
    for one, other in zip(run.log, per.log, strict=True):
        for point in ("after_fit", "after_agg"):
            for i, model in getattr(other, point).items():
                found = getattr(one, point)[i]
                assert torch.allclose(found.params[:69], model.params, rtol=0, atol=1e-12)


def test_without_a_weight_the_magnitude_has_no_effect():
    make = lambda **o: Simulation("gpfl", blobs([9, 17]), train=PLAIN, **o).run(2)  # noqa: E731
    assert_near(make(lam=0.0), make(guidance="angle"))


def test_embeddings_decay_by_themselves():
    run = Simulation("gpfl", blobs([9]), train=PLAIN, guidance="none", mu=0.3).run(1)
    rows = [run.method.rows(model) for model in (run.initial, run.log[0].after_fit[0])]
    assert torch.allclose(rows[1], (1 - 0.1 * 0.3) ** run.log[0].steps[0] * rows[0])
    both = Simulation("gpfl", blobs([9]), train=PLAIN | {"weight_decay": 0.3}, guidance="none", mu=0.3).run(1)
    assert torch.allclose(run.method.rows(both.log[0].after_fit[0]), rows[1])


class OwnSgd(Mlp):
    """Its optimiser has a decay of its own."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, weight_decay=0.2)


def test_the_decay_of_the_module_s_optimizer_counts_besides():
    train = PLAIN | {"optimizer": "module", "weight_decay": 0.05}
    run = Simulation("gpfl", blobs([9]), module=OwnSgd(), train=train, guidance="none", mu=0.3).run(1)
    rows = [run.method.rows(model) for model in (run.initial, run.log[0].after_fit[0])]
    assert torch.allclose(rows[1], (1 - 0.1 * (0.3 + 0.2)) ** run.log[0].steps[0] * rows[0])


def test_conditional_inputs_are_those_of_the_received_embeddings():
    run = Simulation("gpfl", blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME).run(2)
    for i in range(3):
        shares = run.data[i].labels.bincount(minlength=4) / len(run.data[i])
        agg = run.log[1].after_agg[i]
        assert torch.allclose(run.method.condition.take(agg.buffers), shares @ run.method.rows(agg), atol=1e-6)
        assert torch.equal(run.method.rows(agg), run.method.rows(run.log[1].after_agg[0]))
    fit, before = run.log[1].after_fit[0], run.log[0].after_agg[0]
    assert torch.equal(run.method.condition.take(fit.buffers), run.method.condition.take(before.buffers))
    idle = run.method.idle_model(run.client(2, 2))
    shares = run.data[2].labels.bincount(minlength=4) / 12
    assert torch.allclose(run.method.condition.take(idle.buffers), shares @ run.method.rows(run.initial), atol=1e-6)
    assert equal(run.personal(0), run.personal(0))


def test_one_class_has_its_own_embedding_as_condition():
    data = blobs([9, 17])
    data[0].labels = torch.full((9,), 2)
    run = Simulation("gpfl", data).run(1)
    agg = run.log[0].after_agg[0]
    assert torch.equal(run.method.condition.take(agg.buffers), run.method.rows(agg)[2])


def test_a_prediction_is_the_head_on_the_opened_features():
    run = Simulation("gpfl", blobs([9, 17]), module=Mlp(norm=True), train=PLAIN).run(2)
    agg, data = run.log[1].after_agg[0], run.data[0]
    features = run.learner.features(agg, data, "guide")
    named = run.learner.flat.state_dict(agg)
    guide = Guide(4, 5, True, 0).double()
    guide.load_state_dict({k.removeprefix("guide."): v for k, v in named.items() if k.startswith("guide.")})
    with torch.no_grad():
        opened = guide(features)
    expected = opened @ named["head.weight"].T + named["head.bias"]
    assert torch.allclose(run.learner.logits(agg, data), expected)


def test_one_step_by_hand():
    """Embeddings, valve, body and head step along the sum of all terms, whose targets are constants."""
    train = PLAIN | {"batch_size": "full", "epochs": 1}
    run = Simulation("gpfl", blobs([9, 17]), train=train, lam=0.3, mu=0.0)
    model, data = run.method.receive(run.client(0, 0)), run.data[0]
    run.learner.flat.load(model)
    module = run.learner.module
    anchors = run.method.rows(model)
    z = module.body(data.x)
    guided = module.guide.valve(z, anchors.mean(0))
    loss = torch.nn.functional.cross_entropy(module.head(z), data.labels)
    loss = loss + angle_loss(guided, module.guide.embeddings, data.labels)
    loss = loss + 0.3 * magnitude(guided - anchors[data.labels], "batch")
    slopes = torch.autograd.grad(loss, run.learner.flat.parameters)
    expected = model.params - 0.1 * torch.cat([slope.flatten() for slope in slopes])
    run.run(1)
    assert torch.allclose(run.log[0].after_fit[0].params, expected, rtol=0, atol=1e-12)


def test_bytes_are_those_of_body_embeddings_and_valve():
    run = Simulation("gpfl", blobs([9, 17]), module=Mlp(norm=True)).run(2)
    size = 4 * (79 - 24 + 20 + 2 * 25 + 6 * 5)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in run.log)
    assert run.states[0].buffers is None
    assert run.method.global_model(run.server, run.initial) is None
    assert_same(run, run)
