"""flute: what the specification promises."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedbench.engine.fit import Amount
from fedbench.errors import ConfigError
from fedbench.methods.flute import collapse_distance, collapse_step, feature_penalty, regularised_loss
from tests.methods.simulator import Mlp, Quadratic, Simulation, blobs, close, equal, targets

SIZES = [9, 17, 12, 30]
W = torch.tensor([[1.0, 0], [0, 1], [1, 1]], dtype=torch.float64)
ALL, OUTER, MIDDLE = (torch.tensor(u, dtype=torch.bool) for u in ([1, 1, 1], [1, 0, 1], [0, 1, 0]))
NOTHING = {"lambda_1": 0, "lambda_2": 0, "lambda_3": 0, "server_lr": 0}


def run(rounds=2, norm=False, method="flute", sizes=SIZES, **options) -> Simulation:
    draw, train = options.pop("draw", None), options.pop("train", None)
    return Simulation(method, blobs(sizes), module=Mlp(norm), draw=draw, train=train, **options).run(rounds)


def gradient(weight, present):
    weight = weight.clone().requires_grad_()
    collapse_distance(weight, present).backward()
    return weight.grad


def head_of(weights) -> torch.Tensor:
    return weights.params[-24:-4]


@pytest.mark.parametrize(
    ("present", "distance", "slope"),
    [
        (ALL, 1.184785, [-0.025164, 0.301971, 0.301971, -0.025164, 0.025164, 0.025164]),
        (OUTER, 0.979424, [-0.030441, 0.213084, 0.060881, 0.121762, 0.030441, -0.121762]),
        (MIDDLE, 0.961291, [0.062030, 0.031015, 0.031015, -0.248118, 0.093044, 0.093044]),
    ],
)
def test_distance_to_collapse(present, distance, slope):
    assert close(collapse_distance(W, present), [distance])
    assert close(gradient(W, present), slope)


def test_the_server_step():
    stepped = [1.003146, -0.037746, -0.037746, 1.003146, 0.996854, 0.996854]
    assert close(collapse_step(W, ALL, 0.5 / 4), stepped)
    stepped = [0.992246, -0.003877, -0.003877, 1.031015, 0.988369, 0.988369]
    assert close(collapse_step(W, MIDDLE, 0.5 / 4), stepped)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_frame_itself_has_no_distance_and_no_slope(dtype):
    frame = torch.eye(3, dtype=dtype) - 1 / 3
    assert collapse_distance(frame, ALL) == 0
    assert torch.equal(gradient(frame, ALL), torch.zeros_like(frame))
    assert torch.equal(collapse_step(frame, ALL, 0.5), frame)


def test_a_head_of_zeros_is_skipped():
    assert collapse_distance(torch.zeros(3, 2), ALL) == 0
    assert torch.equal(gradient(torch.zeros(3, 2), ALL), torch.zeros(3, 2))


def test_the_penalty_of_features():
    features = torch.tensor([[1.0, 2], [0, 3]])
    assert float(feature_penalty(features, "sum")) == 14
    assert float(feature_penalty(features, "mean")) == 7


@pytest.mark.parametrize(("norm", "penalty"), [("sum", 14), ("mean", 7)])
def test_the_loss_of_a_batch(norm, penalty):
    net, batch = Given().double(), (torch.tensor([[1.0, 2], [0, 3]], dtype=torch.float64), torch.tensor([0, 2]))
    asked = dict(lambda_1=0.25, lambda_2=0.0025, lambda_3=0.0005, present=OUTER, weight="head.weight")
    own = float(net.training_step(batch).detach())
    alone, both = (
        regularised_loss(net, batch, SimpleNamespace(**asked, head=head, feature_norm=norm)).detach()
        for head in (None, "head")
    )
    assert float(alone) == pytest.approx(own + 0.25 * 0.979424 + 0.0025 * 4, abs=1e-6)
    assert float(both) == pytest.approx(float(alone) + 0.0005 * penalty, abs=1e-12)


class Given(Mlp):
    """The head of the specification's example on features that are the input."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Identity(), nn.Linear(2, 3)
        with torch.no_grad():
            self.head.weight.copy_(W)


heads = st.tuples(st.integers(2, 5), st.integers(1, 6), st.integers(0, 10**6))


@given(heads, st.floats(0.1, 50), st.data())
@settings(max_examples=60)
def test_distance_knows_neither_scale_nor_rotation(head, scale, data):
    classes, width, seed = head
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, width, dtype=torch.float64, generator=draw)
    turn, _ = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=draw))
    present = torch.tensor(data.draw(st.lists(st.booleans(), min_size=classes, max_size=classes)))
    distance = float(collapse_distance(weight, present))
    assert 0 <= distance <= 2
    assert float(collapse_distance(scale * weight, present)) == pytest.approx(distance, abs=1e-9)
    assert float(collapse_distance(weight @ turn, present)) == pytest.approx(distance, abs=1e-9)
    slope = gradient(weight, present)
    assert float((slope * weight).sum()) == pytest.approx(0, abs=1e-9)
    closer = float(collapse_distance(collapse_step(weight, present, 1e-4), present))
    assert closer <= distance + 1e-12


def test_the_servers_step_brings_heads_closer_to_collapse():
    made = run(3)
    for seen in made.log:
        before, after = (
            [seen.traces[i, name] for i in range(4)] for name in ("collapse_distance", "collapse_distance_stepped")
        )
        assert sum(after) < sum(before)
        assert all(0 <= d <= 2 for d in before + after)


@pytest.mark.parametrize("amount", [{"epochs": 3}, {"steps": 7}])
def test_first_the_head_then_both_with_one_stream_and_one_momentum(amount):
    options = {"momentum": 0.9, "weight_decay": 0.01}
    made, batches = run(1, train={**options, **amount}), []
    client, start = made.client(1, 1), made.initial
    client.fit(start, Spy(client.train, batches), amount=Amount(**amount))
    assert len(batches) == (9 if "epochs" in amount else 7)
    last = len(batches) - (3 if "epochs" in amount else 1)
    w, v = start.params, torch.zeros_like(start.params)
    for t, index in enumerate(batches):
        w, v = step(made, w, v, client, index, t >= last, **options)
    assert torch.allclose(w, made.log[0].after_fit[1].params, rtol=0, atol=1e-6)


def test_the_body_is_frozen_in_the_first_phase_but_for_its_statistics():
    fitted, start = run(1, norm=True, rep_epochs=0).log[0].after_fit[1], run(1, norm=True).initial
    assert torch.equal(fitted.params[:-24], start.params[:-24])
    assert not torch.equal(fitted.params[-24:-4], start.params[-24:-4])
    assert not torch.equal(fitted.params[-4:], start.params[-4:])
    assert not torch.equal(fitted.buffers, start.buffers)


class Spy:
    """Data that note which images a fit asks for."""

    def __init__(self, data, seen):
        self.data, self.seen, self.key = data, seen, data.key

    def __len__(self):
        return len(self.data)

    def batch(self, index):
        self.seen.append(index)
        return self.data.batch(index)


def step(made, w, v, client, index, both, momentum, weight_decay):
    """One step of the specification's algorithm on a whole vector."""
    present = client.train.labels.bincount(minlength=4) > 0

    def loss(net, batch, s):
        weight, features = net.head.weight, net.body(batch[0])
        value = net.training_step(batch) + 0.25 * collapse_distance(weight, present) + 0.0025 * weight.square().sum()
        return value + 0.0005 * features.square().sum() if both else value

    _, g = made.learner.gradient(made.initial.replace(params=w), client.train.batch(index), loss)
    moves = torch.ones_like(w, dtype=torch.bool) if both else made.context.layout.mask("head")
    v = torch.where(moves, momentum * v + g + weight_decay * w, v)
    return torch.where(moves, w - 0.1 * v, w), v


def test_after_agg_is_the_mean_body_with_the_own_stepped_head():
    made = run(2, norm=True)
    head = made.context.layout.mask("head")
    for seen in made.log:
        trained = torch.stack([seen.after_fit[i].params for i in range(4)]).double()
        body = (trained[:, ~head] * torch.tensor(SIZES)[:, None]).sum(0) / sum(SIZES)
        for i in range(4):
            present = made.data[i].labels.bincount(minlength=4) > 0
            stepped = collapse_step(head_of(seen.after_fit[i]).double().view(4, 5), present, 0.5 / 4)
            assert torch.allclose(seen.after_agg[i].params[~head].double(), body, atol=1e-6)
            assert torch.equal(head_of(seen.after_agg[i]), stepped.float().flatten())
            assert torch.equal(seen.after_agg[i].params[-4:], seen.after_fit[i].params[-4:])
            assert not torch.equal(head_of(seen.after_agg[i]), head_of(seen.after_fit[i]))


def test_a_round_begins_with_the_stepped_head():
    made = run(2, draw=lambda t: [0, 1] if t == 1 else [0], train={"epochs": 0})
    assert equal(made.log[1].after_fit[0], made.log[0].after_agg[0])


def test_who_sits_out_keeps_its_head_and_takes_the_newest_body():
    made = run(3, norm=True, draw=lambda t: [0, 1, 3] if t == 1 else [0, 1])
    head = made.context.layout.mask("head")
    first, last = made.log[0].after_agg, made.log[2].after_agg
    assert torch.equal(last[3].params[head], first[3].params[head])
    assert torch.equal(last[2].params[head], made.initial.params[head])
    assert all(torch.equal(last[i].params[~head], last[0].params[~head]) for i in (1, 2, 3))
    assert not torch.equal(last[3].params[~head], first[3].params[~head])


def test_bodies_know_nothing_of_the_servers_step():
    made, without = run(1), run(1, server_lr=0)
    assert torch.equal(made.server.params, without.server.params)
    assert equal(made.log[0].after_fit[0], without.log[0].after_fit[0])
    assert torch.equal(head_of(without.log[0].after_agg[0]), head_of(without.log[0].after_fit[0]))
    assert made.method.global_model(made.server, made.initial) is None


@pytest.mark.parametrize(
    ("drawn", "scale", "rate"), [([1], "mean", 0.5), (range(4), "mean", 0.125), (range(4), "sum", 0.5)]
)
def test_the_server_descends_the_mean_over_the_participants_or_the_sum(drawn, scale, rate):
    seen = run(1, draw=lambda t: drawn, server_scale=scale).log[0]
    head = collapse_step(head_of(seen.after_fit[1]).double().view(4, 5), seen.uploads[1].present, rate)
    assert torch.equal(head_of(seen.after_agg[1]), head.float().flatten())


def test_running_statistics_are_averaged_or_private():
    mean, own = (run(2, norm=True, **more).log[1] for more in ({}, {"buffers": "private"}))
    assert len({tuple(w.buffers.tolist()) for w in mean.after_agg.values()}) == 1
    assert all(torch.equal(own.after_agg[i].buffers, own.after_fit[i].buffers) for i in range(4))


def test_one_weight_of_zero_switches_its_term_off():
    made = Simulation("flute", blobs([9]), **{**NOTHING, "lambda_2": 0.1})
    present = torch.ones(4, dtype=torch.bool)
    asked = made.method.loss(present, 0.0).needs
    assert [asked[f"lambda_{k}"] for k in (1, 2, 3)] == [0, 0.1, 0]
    assert asked["head"] is None
    nothing = Simulation("flute", blobs([9]), **NOTHING)
    assert nothing.method.loss(present, 0.0) is None


@pytest.mark.parametrize("classes", [4, 9])
def test_bytes(classes):
    made = Simulation("flute", blobs(SIZES), module=Mlp(True, classes=classes), train={"epochs": 1})
    made.method.context = replace(made.context, classes=classes)
    made.run(2)
    size, stats = made.context.layout.size, made.context.layout.buffer_size
    for seen in made.log:
        assert set(seen.up.values()) == {4 * (size - classes + stats) + -(-classes // 8) + 4}
        assert set(seen.down.values()) == {4 * (size - classes + stats)}


def test_classes_are_present_or_not_whatever_their_number():
    made = run(1)
    for i, upload in made.log[0].uploads.items():
        assert upload.present.tolist() == [bool((made.data[i].labels == c).any()) for c in range(4)]


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("flute", targets(1.0), module=Quadratic())
    deep = Mlp()
    deep.head = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 4))
    with pytest.raises(ConfigError, match="one linear layer"):
        Simulation("flute", blobs(SIZES), module=deep)


def test_one_class_is_refused():
    made = Simulation("flute", blobs(SIZES))
    made.method.context = replace(made.context, classes=1)
    with pytest.raises(ConfigError, match="two classes"):
        made.method.check()


def test_a_head_without_a_bias():
    plain = Mlp()
    plain.head = nn.Linear(5, 4, bias=False)
    made = Simulation("flute", blobs(SIZES), module=plain).run(2)
    assert set(made.log[1].down.values()) == {4 * made.context.layout.size}


def test_a_class_with_one_image_is_there():
    images = blobs([3])[0]
    client = replace(images, labels=torch.tensor([0, 0, 2]))
    assert Simulation("flute", [client]).run(1).log[0].uploads[0].present.tolist() == [True, False, True, False]
