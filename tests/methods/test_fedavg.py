"""fedavg: what the specification promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.methods.messages import Upload
from tests.methods.simulator import Mlp, Quadratic, Simulation, blobs, close, equal, targets

FULL = {"batch_size": "full", "epochs": 1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}


def pair(weighting="samples"):
    simulation = Simulation(
        "fedavg", targets((0.0, 0.0), (0.0, 0.0)), module=Quadratic((0.0, 0.0)), weighting=weighting
    )
    none = torch.zeros(0)
    uploads = [
        Upload(0, 1, params=torch.tensor([1.0, 2.0]), buffers=none, counters=none),
        Upload(1, 3, params=torch.tensor([5.0, -2.0]), buffers=none, counters=none),
    ]
    simulation.method.aggregate(simulation.server, uploads)
    return simulation.server.params


def test_the_mean_is_weighted_by_images_or_uniform():
    assert close(pair(), [4, -1])
    assert close(pair("uniform"), [3, 0])


def test_heavy_ball():
    train = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0, "epochs": 1, "batch_size": 1}

    class Slope(Quadratic):
        def training_step(self, batch):
            return self.w.sum()

    seen = []
    for steps in (1, 2, 3):
        run = Simulation("fedavg", targets(0.0), module=Slope(), train={**train, "steps": steps}).run(1)
        seen.append(float(run.server.params))
    assert close(seen, [-0.1, -0.25, -0.425])


def test_weight_decay_goes_through_momentum_for_every_parameter():
    train = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.2, "epochs": 2, "batch_size": 1}
    run = Simulation("fedavg", targets(2.0), module=Quadratic((1.0,)), train=train).run(1)
    w, v = 1.0, 0.0
    for _ in range(2):
        v = 0.5 * v + (w - 2) + 0.2 * w
        w -= 0.1 * v
    assert close(run.server.params, [w])


def test_momentum_is_dropped_between_rounds_unless_kept():
    def last(keep):
        train = {"momentum": 0.5, "weight_decay": 0, "epochs": 2, "batch_size": 1, "keep_optimizer": keep}
        return Simulation("fedavg", targets(2.0), module=Quadratic(), train=train).run(2).server.params

    assert close(last(False), [0.8448])
    assert close(last(True), [1.0408])


def test_full_batch_steps_are_centralized_steps():
    fedavg, centralized = (Simulation(m, blobs([5, 9, 14]), train=FULL).run(4) for m in ("fedavg", "centralized"))
    assert torch.allclose(fedavg.server.params, centralized.server.params, rtol=0, atol=1e-12)


def test_no_epochs_change_nothing():
    run = Simulation("fedavg", blobs([5, 9]), train={"epochs": 0, "lr": 7.0}).run(2)
    assert torch.equal(run.server.params, run.initial.params)


@pytest.mark.parametrize("participation", [range(3), (1,), (0, 2)])
def test_the_new_model_lies_between_the_trained_ones_and_is_everyones(participation):
    run = Simulation("fedavg", blobs([5, 9, 14]), module=Mlp(norm=True), draw=lambda t: participation).run(2)
    for seen in run.log:
        trained = torch.stack([w.params for w in seen.after_fit.values()])
        new = seen.after_agg[0].params
        assert list(seen.after_fit) == list(participation)
        assert (new >= trained.min(0).values - 1e-6).all()
        assert (new <= trained.max(0).values + 1e-6).all()
        assert all(equal(w, seen.after_agg[0]) for w in seen.after_agg.values())


@given(st.lists(st.integers(1, 500), min_size=1, max_size=6), st.integers(2, 50))
def test_weights_sum_to_one_and_only_their_ratio_counts(sizes, factor):
    simulation = Simulation("fedavg", targets(0.0), module=Quadratic())
    uploads = [Upload(client=i, samples=n) for i, n in enumerate(sizes)]
    larger = [Upload(client=i, samples=n * factor) for i, n in enumerate(sizes)]
    weights = simulation.method.weights(uploads)
    assert sum(weights) == pytest.approx(1, abs=1e-12)
    assert weights == pytest.approx(simulation.method.weights(larger), rel=1e-12)
    if len(set(sizes)) == 1:
        assert weights == pytest.approx([1 / len(sizes)] * len(sizes), rel=1e-12)


def test_statistics_are_averaged_and_counters_are_not():
    run = Simulation("fedavg", blobs([8, 24]), module=Mlp(norm=True), train={"batch_size": 8, "epochs": 1}).run(1)
    first, second = run.log[0].after_fit[0], run.log[0].after_fit[1]
    new = run.log[0].after_agg[0]
    assert torch.allclose(new.buffers, (8 * first.buffers + 24 * second.buffers) / 32)
    assert (int(first.counters), int(second.counters), int(new.counters)) == (1, 3, 3)
    assert new.counters.dtype == torch.int64


def test_private_buffers_stay_at_the_client():
    run = Simulation("fedavg", blobs([8, 24]), module=Mlp(norm=True), buffers="private").run(2)
    for i in (0, 1):
        assert torch.equal(run.log[1].after_agg[i].buffers, run.log[1].after_fit[i].buffers)
        assert torch.equal(run.log[1].after_agg[i].counters, run.log[1].after_fit[i].counters)
    assert run.log[0].up[0] == 4 * run.context.layout.size


@pytest.mark.parametrize("norm", [False, True])
def test_bytes(norm):
    run = Simulation("fedavg", blobs([8, 24]), module=Mlp(norm)).run(2)
    size = 4 * (run.context.layout.size + run.context.layout.buffer_size)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in run.log)


def test_a_received_model_is_never_written():
    run = Simulation("fedavg", blobs([8, 24]))
    sent = run.method.send(run.server, 0)
    before = sent.params.clone()
    run.round()
    assert torch.equal(sent.params, before)


def test_a_late_client_starts_from_the_global_model():
    run = Simulation("fedavg", blobs([8, 24, 9]), draw=lambda t: [0, 1] if t < 3 else [2], train={"epochs": 0}).run(3)
    assert torch.equal(run.log[2].after_fit[2].params, run.log[1].after_agg[0].params)
