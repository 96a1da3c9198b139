"""per-fedavg: what the specification promises."""

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

from fedbench.aggregation.means import mean
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods.per_fedavg import BATCHES, meta_steps
from fedbench.module import seeds
from fedbench.module.weights import Weights
from fedbench.runtime.warnings import config_warnings
from tests.methods.simulator import (
    Data,
    Mlp,
    Quadratic,
    Simulation,
    accuracy_of,
    blobs,
    close,
    equal,
    targets,
)
from tests.runtime.rounds import small

SIZES = [9, 17, 12]
PLAIN = {"momentum": 0, "weight_decay": 0}
DOUBLE = {"precision": "64-true"}
VARIANTS = ["fo", "hf", "exact"]


def run(name="per-fedavg", rounds=3, norm=False, sizes=SIZES, **options) -> Simulation:
    fixed = {k: options.pop(k) for k in ("draw", "train", "module") if k in options}
    return Simulation(name, blobs(sizes), module=fixed.pop("module", None) or Mlp(norm), **fixed, **options).run(rounds)


class Cubic(LightningModule):
    """f(w) = w1^2 w2 + w2^2, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 0.5]))

    def training_step(self, batch):
        return self.w[0] ** 2 * self.w[1] + self.w[1] ** 2


class Dropped(LightningModule):
    """BatchNorm and Dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.5))
        self.head = nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.892, 0.218]),
        ({"variant": "exact"}, [0.9592, 0.296]),
        ({"variant": "hf"}, [0.9592, 0.296]),
        ({"variant": "hf", "delta": 0.1}, [0.9592, 0.296]),
    ],
)
def test_one_meta_step(options, expected):
    train = {**DOUBLE, "lr": 0.2, "batch_size": "full", "epochs": 1}
    mine = Simulation("per-fedavg", targets(0.0), module=Cubic(), train=train, alpha=0.1, **options).run(1)
    assert close(mine.log[0].uploads[0].params, expected)
    if not options:
        assert close(mine.log[0].after_fit[0].params, [0.853109, 0.094834])
        assert close(mine.log[0].after_agg[0].params, [0.853109, 0.094834])


def test_beta_is_lr_unless_it_is_set():
    assert_same_uploads(run(train={"lr": 0.03}), run(train={"lr": 0.5}, beta=0.03))


def assert_same_uploads(a: Simulation, b: Simulation) -> None:
    for one, other in zip(a.log, b.log, strict=True):
        for i, upload in one.uploads.items():
            assert all(torch.equal(tensor, other.uploads[i].tensors[name]) for name, tensor in upload.tensors.items())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_round_in_plain_pytorch(variant):
    """Batches of 4, 4, 1 of nine images: one meta-step an epoch, on consecutive batches of one stream."""
    train = {**DOUBLE, "batch_size": 4, "epochs": 2, "lr": 0.2}
    mine = run(rounds=1, sizes=[9], train=train, alpha=0.3, variant=variant, delta=1e-4)
    data, stream = mine.data[0], seeds.generator(0, 0, 1, "fit", "order")
    batches = [b for _ in range(3) for b in torch.randperm(9, generator=stream).split(4)]
    w, k = mine.initial.params.clone(), 2 if variant == "fo" else 3

    def gradient(w, index):
        w = w.clone().requires_grad_()
        parts = (w[:30].view(5, 6), w[30:35], w[35:55].view(4, 5), w[55:])
        logits = F.linear(F.relu(F.linear(data.x[index], *parts[:2])), *parts[2:])
        (g,) = torch.autograd.grad(F.cross_entropy(logits, data.labels[index]), w)
        return g

    for step in range(2):
        group = batches[k * step : k * step + k]
        g = gradient(w - 0.3 * gradient(w, group[0]), group[1])
        d = g
        if variant != "fo":
            d = g - 0.3 * (gradient(w + 1e-4 * g, group[2]) - gradient(w - 1e-4 * g, group[2])) / 2e-4
        w = w - 0.2 * d
    assert torch.allclose(mine.log[0].uploads[0].params, w, rtol=0, atol=1e-7 if variant == "exact" else 1e-10)


@pytest.mark.parametrize(
    ("variant", "batch", "epochs", "steps", "samples", "expected"),
    [
        ("fo", 8, 1, None, 100, 6),
        ("hf", 8, 1, None, 100, 4),
        ("exact", 8, 3, None, 100, 12),
        ("fo", 8, 5, None, 9, 5),
        ("hf", 8, 5, None, 9, 5),
        ("fo", "full", 5, None, 100, 5),
        ("hf", 8, 1, 7, 100, 7),
        ("fo", 8, 0, None, 100, 0),
    ],
)
def test_how_many_meta_steps(variant, batch, epochs, steps, samples, expected):
    train = {"batch_size": batch, "epochs": epochs, "steps": steps}
    mine = run(rounds=0, sizes=[samples], train=train, variant=variant)
    assert meta_steps(mine.train, samples, BATCHES[variant]) == expected
    mine.server.round, mine.server.participants = 1, [0]
    mine.learner.ledger.clear()
    client = mine.client(0, 1)
    mine.method.train(client, mine.initial)
    assert mine.learner.ledger.steps == expected * {"fo": 2, "hf": 4, "exact": 3}[variant]


def test_hf_goes_to_exact_as_delta_goes_to_0():
    train = {**DOUBLE, "lr": 0.1, "batch_size": 8, "steps": 2}
    clients = blobs([20, 26], classes=3)
    runs = [
        Simulation("per-fedavg", clients, module=Mlp(classes=3), train=train, alpha=0.05, **options).run(3)
        for options in ({"variant": "exact"}, {"variant": "hf", "delta": 1e-4}, {})
    ]
    exact, hf, fo = (mine.server.params for mine in runs)
    assert runs[0].context.layout.size == 53
    assert (exact - hf).abs().max() < 1e-9
    assert (exact - fo).abs().max() > 1e-4


def test_both_sides_of_the_difference_have_the_same_dropout_masks():
    train = {**DOUBLE, "lr": 0.1, "batch_size": 8, "epochs": 2}
    exact, near = (
        run(rounds=1, sizes=[24], module=Dropped(), train=train, alpha=0.3, **options)
        for options in ({"variant": "exact"}, {"variant": "hf", "delta": 1e-4})
    )
    assert torch.allclose(exact.server.params, near.server.params, rtol=0, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_passes_for_the_hessian_leave_statistics_alone(variant):
    mine = run(rounds=1, norm=True, sizes=[24], variant=variant, train={"steps": 3})
    assert mine.log[0].uploads[0].counters.tolist() == [6]


def test_without_adaptation_the_shared_model_is_evaluated():
    mine = run(adapt_steps=0)
    for seen in mine.log:
        for i, upload in seen.uploads.items():
            assert torch.equal(seen.after_fit[i].params, upload.params)
    assert torch.equal(mine.log[-1].after_agg[0].params, mine.server.params)
    assert_same_uploads(mine, run(adapt_steps=3))


@pytest.mark.parametrize("steps", [1, 3])
def test_adaptation_is_full_gradient_steps_on_the_training_images(steps):
    mine = run(rounds=2, train=DOUBLE, alpha=0.4, adapt_steps=steps)
    for i in range(3):
        for start, found in (
            (mine.log[-1].uploads[i].params, mine.log[-1].after_fit[i]),
            (mine.server.params, mine.log[-1].after_agg[i]),
        ):
            net = Mlp().double()
            nn.utils.vector_to_parameters(start.clone(), net.parameters())
            optimizer = torch.optim.SGD(net.parameters(), 0.4)
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(net(mine.data[i].x), mine.data[i].labels).backward()
                optimizer.step()
            expected = nn.utils.parameters_to_vector(net.parameters()).detach()
            assert torch.allclose(found.params, expected, rtol=0, atol=1e-12)


def test_adaptation_passes_over_the_batches_in_stored_order_in_train_mode():
    mine = run(rounds=1, norm=True, sizes=[20], adapt_steps=2)
    held = mine.personal(0)
    assert held.counters.tolist() == (mine.server.counters + 6).tolist()
    seen: list[list[int]] = []
    client = mine.client(0, 1)
    batch = Data.batch
    try:
        Data.batch = lambda self, index: seen.append(index.tolist()) or batch(self, index)
        assert equal(mine.method.personal(client, mine.method.receive(client), "after_agg"), held)
    finally:
        Data.batch = batch
    order = list(range(20))
    assert seen == [order[:8], order[8:16], order[16:]] * 2


def test_adaptation_draws_from_a_stream_of_its_own_and_changes_nothing():
    train = {"batch_size": 8, "epochs": 2, "lr": 0.1}
    looked, silent = (Simulation("per-fedavg", blobs(SIZES), module=Dropped(), train=train) for _ in range(2))
    for _ in range(3):
        seen = looked.round()
        models = [seen.after_agg[i] for i in range(3)], [looked.personal(i) for i in range(3)]
        assert all(equal(a, b) for a, b in zip(*models, strict=True))
        silent.round(evaluate=False)
    assert_same_uploads(looked, silent)
    assert looked.states == silent.states == {}
    earlier = looked.client(0, 2)
    assert not equal(models[0][0], looked.method.personal(earlier, looked.method.receive(earlier), "after_agg"))


def test_rates_decay_in_training_and_in_adaptation():
    train = {**DOUBLE, "lr": 0.2, "batch_size": "full", "epochs": 1, "lr_decay": 0.5}
    mine = Simulation("per-fedavg", targets(0.0), module=Cubic(), train=train, alpha=0.1).run(1)
    second = Simulation("per-fedavg", targets(0.0), module=Cubic(), train={**train, "lr": 0.1}, alpha=0.05)
    second.server.params = mine.server.params
    one, other = mine.round(), second.run(1, evaluate=False).log[0]
    assert torch.allclose(one.uploads[0].params, other.uploads[0].params, rtol=0, atol=1e-12)
    start = mine.server.params
    slope = torch.stack([2 * start[0] * start[1], start[0] ** 2 + 2 * start[1]])
    assert torch.allclose(one.after_agg[0].params, start - 0.05 * slope, rtol=0, atol=1e-12)


def test_who_never_trained_is_evaluated_with_the_adapted_initial_model():
    mine = run(rounds=0, alpha=0.3)
    found = untrained(mine)
    assert not torch.equal(found.params, mine.initial.params)
    assert equal(found, mine.personal(1))
    assert equal(untrained(run(rounds=0, adapt_steps=0)), mine.initial)


def untrained(mine: Simulation) -> Weights:
    """The personal model of client 1 before its first training."""
    client = mine.client(1, 0)
    return mine.method.personal(client, mine.method.idle_model(client), "after_fit")


def test_the_mean_is_uniform_or_by_images():
    mine = run(rounds=1, norm=True)
    uploads = list(mine.log[0].uploads.values())
    assert torch.equal(mine.server.params, mean([u.params for u in uploads]))
    assert torch.equal(mine.server.buffers, mean([u.buffers for u in uploads]))
    other = run(rounds=1, weighting="samples", norm=True)
    expected = sum(n * u.params.double() for n, u in zip(SIZES, uploads, strict=True)) / sum(SIZES)
    assert torch.allclose(other.server.params.double(), expected, rtol=0, atol=1e-7)


def test_the_raw_model_is_the_global_one():
    mine = run(rounds=1)
    assert torch.equal(mine.method.global_model(mine.server, mine.initial).params, mine.server.params)


def test_bytes():
    for seen in run(rounds=2, norm=True, variant="hf").log:
        assert set(seen.up.values()) == set(seen.down.values()) == {4 * 79}


def test_the_optimiser_has_no_part_and_that_is_said():
    plain, odd = run(), run(train={"momentum": 0.9, "keep_optimizer": True})
    assert_same_uploads(plain, odd)
    assert config_warnings(resolve(small("per-fedavg")).config) == []
    assert "train.momentum = 0.9: " in config_warnings(resolve(small("per-fedavg", train={"momentum": 0.9})).config)[0]
    config = resolve(small("per-fedavg")).config
    assert (config.train.momentum, config.train.weight_decay) == (0, 0)


@pytest.mark.parametrize("option", [{"alpha": -1}, {"beta": 0}, {"delta": 0}, {"adapt_steps": -1}, {"variant": "so"}])
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ConfigError, match=f"method.{next(iter(option))}"):
        resolve(small("per-fedavg", **{f"method__{key}": value for key, value in option.items()}))


def test_the_other_engine_is_refused():
    with pytest.raises(ConfigError, match="steps of its own"):
        check_run(resolve(small("per-fedavg", train__engine="trainer")))


def test_one_step_of_adaptation_gains_where_labels_are_skewed():
    clients = blobs([40] * 2, seed=3) + blobs([40] * 2, seed=4, shift=1)
    mine = Simulation("per-fedavg", clients, train={"lr": 0.1, "epochs": 5}, alpha=0.5, variant="hf").run(10)
    raw = mine.method.global_model(mine.server, mine.initial)
    gains = [
        accuracy_of(mine.learner, mine.log[-1].after_agg[i], mine.data[i])
        - accuracy_of(mine.learner, raw, mine.data[i])
        for i in range(4)
    ]
    assert sum(gains) / 4 > 0.1


def test_a_newcomer_makes_as_many_steps_of_adaptation_as_epochs():
    run = Simulation("per-fedavg", targets(1.0), module=Quadratic(), alpha=0.1, adapt_steps=5)
    assert [round(float(run.joined(targets(2.0)[0], epochs).params), 6) for epochs in (0, 1, 2)] == [0, 0.2, 0.38]
