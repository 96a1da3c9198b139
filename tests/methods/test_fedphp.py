"""fedphp: what the specification promises."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedbench.errors import ConfigError
from fedbench.methods.client import with_teacher_outputs
from fedbench.methods.fedphp import (
    discrepancy,
    distillation,
    half_squared_distance,
    inherited_model,
    past_share,
    transfer_loss,
)
from fedbench.module.weights import Weights
from tests.methods.simulator import Data, Mlp, Quadratic, Simulation, assert_same, blobs, close, equal, targets

SIZES = [9, 17, 12]
A = torch.tensor([[0.0, 0], [1, 0], [0, 2]], dtype=torch.float64)
B = torch.tensor([[1.0, 1], [1, 0], [2, 2]], dtype=torch.float64)
mmd = partial(discrepancy, logits=None)


def run(rounds=3, norm=False, method="fedphp", **options) -> Simulation:
    draw, train = options.pop("draw", None), options.pop("train", None)
    clients = options.pop("clients", None) or blobs(SIZES)
    made = Simulation(method, clients, module=Mlp(norm), draw=draw, train=train, rounds=rounds, **options)
    return made.run(rounds)


def test_discrepancy_and_its_gradient():
    a = A.clone().requires_grad_()
    value = mmd(a, teacher=B)
    value.backward()
    assert close(value.detach(), [1.486993])
    assert close(a.grad, [-0.381504, -0.126088, -0.700900, -0.507851, -0.535329, 0.024495])
    assert float(mmd(A, teacher=A)) == pytest.approx(0, abs=1e-12)


def test_distillation():
    teacher, student = torch.tensor([[4.0, 0, -4]]), torch.tensor([[1.0, 0, 0]])
    assert close(distillation(None, student, (teacher / 4).softmax(1)), [0.886204])


def test_half_squared_distance():
    assert close(half_squared_distance(A, None, B), [1.0])


@pytest.mark.parametrize(
    ("rounds", "drawn", "clients", "expected"),
    [
        (10, 1, 2, [0, 0.18, 0.36, 0.54, 0.72, 0.9, 0.9, 0.9]),
        (3, 4, 4, [0, 0.3, 0.6]),
        (5, 1, 10, [0, 0.9, 0.9]),
        (100, 29, 100, [0, 0.031034]),
    ],
)
def test_the_share_of_the_past(rounds, drawn, clients, expected):
    assert close([past_share(0.9, z, rounds, drawn, clients) for z in range(len(expected))], expected)


def test_the_inherited_model_is_a_moving_average(monkeypatch):
    monkeypatch.setattr("fedbench.methods.fedphp.past_share", lambda *_: 0.36)
    made = Simulation("fedphp", targets((0.0, 4.0)), module=Pair(), train={"epochs": 0}, transfer="kd", lam=0)
    made.round()
    none = dict(buffers=torch.zeros(0), counters=torch.zeros(0, dtype=torch.int64))
    made.keep(0, inherited=Weights(torch.tensor([1.0, 2.0]), **none))
    client = made.client(0, 1)
    upload = made.method.train(client, Weights(torch.tensor([0.0, 4.0]), **none))
    assert close(made.method.personal(client, upload.trained, "after_fit").params, [0.36, 3.28])
    assert close(client.state.inherited.params, [0.36, 3.28])
    assert upload.params.tolist() == [0, 4]


class Pair(Quadratic):
    def __init__(self):
        super().__init__(start=(1.0, 2.0), curvature=(1.0, 1.0))


points = st.integers(1, 5).flatmap(
    lambda n: st.tuples(*[st.lists(st.lists(st.floats(-5, 5), min_size=2, max_size=2), min_size=n, max_size=n)] * 2)
)


@given(points)
def test_discrepancy_is_symmetric_and_never_negative(pair):
    a, b = (torch.tensor(rows, dtype=torch.float64) for rows in pair)
    there, back = float(mmd(a, teacher=b)), float(mmd(b, teacher=a))
    assert there >= -1e-9
    assert there == pytest.approx(back, abs=1e-9)
    assert float(mmd(a, teacher=a)) == pytest.approx(0, abs=1e-12)
    z = torch.cat([a, b])
    squared = (z[:, None] - z).square().sum(2)
    base = squared.sum() / (len(z) ** 2 - len(z)) + 1e-8
    k = sum(torch.exp(-squared / (base / 4 * 2**i)) for i in range(5))
    n = len(a)
    naive = (k[:n, :n] + k[n:, n:] - k[:n, n:] - k[n:, :n]).mean()
    assert there == pytest.approx(float(naive), abs=1e-6)


def test_the_bandwidth_has_no_gradient():
    """The gradient of the kernels at a fixed bandwidth, by differences."""
    a = A.clone().requires_grad_()
    mmd(a, teacher=B).backward()
    z = torch.cat([A, B])
    base = float((z[:, None] - z).square().sum() / 30) + 1e-8

    def at(first):
        z = torch.cat([first, B])
        squared = (z[:, None] - z).square().sum(2)
        k = sum(torch.exp(-squared / (base / 4 * 2**i)) for i in range(5))
        return float((k[:3, :3] + k[3:, 3:] - k[:3, 3:] - k[3:, :3]).mean())

    nudge = torch.zeros_like(A)
    nudge[1, 0] = 1e-5
    assert float(a.grad[1, 0]) == pytest.approx((at(A + nudge) - at(A - nudge)) / 2e-5, abs=1e-8)


@given(st.integers(0, 40), st.integers(1, 60), st.integers(1, 9), st.integers(1, 9), st.floats(0, 0.99))
def test_the_share_of_the_past_never_falls_nor_passes_its_limit(count, rounds, drawn, more, mu):
    shares = [past_share(mu, z, rounds, drawn, drawn + more) for z in (count, count + 1)]
    assert 0 <= shares[0] <= shares[1] <= mu
    assert past_share(mu, 0, rounds, drawn, drawn + more) == 0


def test_without_transfer_and_past_after_fit_is_fedavgs():
    mine, plain = run(3, norm=True, lam=0, mu=0), run(3, norm=True, method="fedavg")
    assert_same(mine, plain, ["after_fit"])
    assert not equal(mine.log[0].after_agg[0], plain.log[0].after_agg[0])


@pytest.mark.parametrize("transfer", ["mmd", "l2"])
def test_the_first_step_is_fedavgs_with_a_smaller_rate(transfer):
    train = {"epochs": 1, "batch_size": "full", "precision": "64-true", "momentum": 0, "weight_decay": 0}
    mine = run(1, transfer=transfer, lam=0.25, train={**train, "lr": 0.1})
    plain = run(1, method="fedavg", train={**train, "lr": 0.075})
    for i in range(3):
        assert torch.allclose(mine.log[0].uploads[i].params, plain.log[0].uploads[i].params, rtol=0, atol=1e-12)


def test_the_loss_of_a_batch():
    net, draw = Mlp().double(), torch.Generator().manual_seed(3)
    x, y = torch.randn(7, 6, dtype=torch.float64, generator=draw), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    own, teacher = net.training_step((x, y)).detach(), torch.randn(7, 5, dtype=torch.float64, generator=draw)
    index = torch.tensor([5, 1, 4, 0, 2, 6, 3])
    state = SimpleNamespace(
        lam=torch.tensor(0.3, dtype=torch.float64), index=index.argsort(), teacher_outputs=teacher[index]
    )
    for transfer in (discrepancy, half_squared_distance):
        function = partial(transfer_loss, name="head", transfer=transfer)
        loss = with_teacher_outputs(net, (x, y), state, function, None).detach()
        assert float(loss) == pytest.approx(float(0.7 * own + 0.3 * transfer(net.body(x), None, teacher).detach()))
    classes = torch.randn(7, 4, dtype=torch.float64, generator=draw).softmax(1)
    state.teacher_outputs = classes[index]
    function = partial(transfer_loss, name="", transfer=distillation)
    loss = with_teacher_outputs(net, (x, y), state, function, None).detach()
    assert float(loss) == pytest.approx(float(0.7 * own + 0.3 * distillation(None, net(x), classes).detach()))
    other = with_teacher_outputs(net, (x, y), state, function, lambda batch: classes.flip(0)).detach()
    assert float(other) == pytest.approx(float(0.7 * own + 0.3 * distillation(None, net(x), classes.flip(0)).detach()))


@pytest.mark.parametrize("transfer", ["mmd", "kd", "l2"])
def test_the_teacher_is_the_inherited_model_of_the_last_participation(transfer):
    made = run(2, norm=True, transfer=transfer, draw=lambda t: [0, 1] if t == 1 else [0, 2], kd_temperature=2)
    client = made.client(0, 3)
    outputs = made.method._distillation_loss(client, inherited_model(client)).needs["teacher_outputs"]
    past = made.log[1].after_fit[0]
    if transfer == "kd":
        expected = (made.learner.logits(past, client.train) / 2).softmax(1)
    else:
        expected = made.learner.features(past, client.train)
    assert torch.equal(outputs, expected)
    new = Simulation("fedphp", blobs(SIZES), module=Mlp(True)).client(0, 1)
    assert equal(inherited_model(new), made.initial)


@pytest.mark.parametrize("transfer", ["mmd", "kd", "l2"])
def test_a_fit_is_taught_by_the_inherited_model_not_by_the_received_one(transfer):
    made = run(1, norm=True, transfer=transfer, lam=0.5)
    client = made.client(0, 2)
    received = made.method.receive(client)
    fits = [
        client.fit(received, client.train, loss=made.method._distillation_loss(client, teacher))
        for teacher in (inherited_model(client), received)
    ]
    upload = made.method.train(client, received)
    assert torch.equal(upload.params, fits[0].params)
    assert not torch.equal(upload.params, fits[1].params)


@pytest.mark.parametrize(("transfer", "engine"), [("mmd", "loop"), ("kd", "loop"), ("l2", "trainer")])
def test_the_teacher_sees_augmented_images_as_they_are(transfer, engine, monkeypatch):
    def trained(augmentation, shift=None):
        clients = blobs(SIZES)
        if shift is not None:
            clients = [Data(shift(data.x), data.labels) for data in clients]
        monkeypatch.setattr(Data, "augmentation", augmentation, raising=False)
        monkeypatch.setattr(
            Data, "with_augmentation", lambda data, _: Data(augmentation(data.x), data.labels, data.key), raising=False
        )
        train = {"engine": engine, "precision": "64-true"}
        return run(2, norm=True, transfer=transfer, lam=0.5, clients=clients, train=train).log[1].uploads[0].params

    plain, same, other = trained(None), trained(lambda x: x), trained(lambda x: -x)
    assert torch.allclose(plain, same, rtol=0, atol=1e-12)
    assert not torch.allclose(plain, other, rtol=0, atol=1e-4)
    assert torch.allclose(other, trained(None, shift=lambda x: -x), rtol=0, atol=1e-12)


def test_the_teacher_learns_after_the_fit_with_the_share_of_earlier_participations():
    made = run(4, norm=True, draw=lambda t: [1, 2] if t == 2 else [0, 1])
    model, seen = None, 0
    for t, rounds in enumerate(made.log):
        if 0 not in rounds.uploads:
            assert equal(rounds.after_agg[0], model)
            continue
        share = past_share(0.9, seen, 4, 2, 3)
        assert rounds.traces[0, "past_share"] == share
        params = rounds.uploads[0].params
        if model is not None:
            assert share > 0
            params = share * model.params + (1 - share) * params
        assert torch.allclose(rounds.after_fit[0].params, params, atol=1e-6), t
        assert equal(rounds.after_agg[0], rounds.after_fit[0])
        model, seen = rounds.after_fit[0], seen + 1
    assert made.states[0].participations == seen == 3


def test_running_statistics_are_averaged_and_counters_taken():
    made = run(2, norm=True)
    first, second = made.log[0].after_fit[1], made.log[1].after_fit[1]
    upload, share = made.log[1].uploads[1], past_share(0.9, 1, 2, 3, 3)
    assert torch.allclose(second.buffers, share * first.buffers + (1 - share) * upload.buffers)
    assert torch.equal(second.counters, upload.counters)


def test_the_global_model_is_the_mean_of_the_trained_ones():
    made = run(2, norm=True)
    trained = torch.stack([made.log[1].uploads[i].params for i in range(3)]).double()
    mean = (trained * torch.tensor(SIZES)[:, None]).sum(0) / sum(SIZES)
    assert torch.allclose(made.method.global_model(made.server, made.initial).params.double(), mean, atol=1e-7)


def test_an_ensemble_means_probabilities():
    made, plain = run(2, norm=True, predictor="ensemble"), run(2, norm=True)
    data, learner = made.client(0, 2).train, made.learner
    probabilities = lambda w: learner.logits(w, data).double().softmax(1)  # noqa: E731
    past = plain.log[1].after_fit[0]
    now = Weights(*(getattr(made.log[1].uploads[0], n) for n in ("params", "buffers", "counters")))
    fit, agg = made.log[1].after_fit[0].scores(data), made.log[1].after_agg[0].scores(data)
    new = made.method.global_model(made.server, made.initial)
    assert torch.allclose(fit.double().exp(), (probabilities(past) + probabilities(now)) / 2, atol=1e-6)
    assert torch.allclose(agg.double().exp(), (probabilities(past) + probabilities(new)) / 2, atol=1e-6)
    assert torch.equal(made.server.params, plain.server.params)


def test_bytes_are_fedavgs():
    made = run(2, norm=True)
    size = 4 * (made.context.layout.size + made.context.layout.buffer_size)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in made.log)


class Headless(Mlp):
    """No submodule is declared the head."""

    def __init__(self):
        super().__init__()
        self.last = self.head
        del self.head

    def forward(self, x):
        return self.last(self.body(x))


@pytest.mark.parametrize("transfer", ["mmd", "l2"])
def test_features_need_a_head(transfer):
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("fedphp", blobs(SIZES), module=Headless(), transfer=transfer)


def test_probabilities_need_no_head():
    made = Simulation("fedphp", blobs(SIZES), module=Headless(), transfer="kd", lam=0.5).run(2)
    assert isinstance(made.learner.module.last, nn.Linear)
    plain = Simulation("fedphp", blobs(SIZES), module=Headless(), transfer="kd", lam=0).run(2)
    assert not equal(made.log[1].after_fit[0], plain.log[1].after_fit[0])


def test_a_newcomer_inherits_the_global_model():
    run = Simulation("fedphp", blobs([9, 17])).run(1)
    assert torch.equal(run.joined(blobs([5])[0], 0).params, run.server.params)
