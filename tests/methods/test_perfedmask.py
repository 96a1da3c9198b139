"""perfedmask: what the specification promises."""

import numpy as np
import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench.engine.fit import Amount, Move
from fedbench.errors import ConfigError
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.messages import Upload
from fedbench.methods.perfedmask import PerFedMask
from fedbench.methods.server import Context
from fedbench.module.layout import Layout, Slot
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Product, Simulation, assert_same, blobs, close, equal, targets

SIZES = [9, 17, 12]


def text(masks: np.ndarray) -> str:
    return " ".join("".join(str(int(m)) for m in row) for row in masks)


class Deep(LightningModule):
    """Three layers of a body, one with BatchNorm, before the head; every instance starts the same."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(
            nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU()
        )
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)


def run(rounds=3, clients=SIZES, module=None, **options) -> Simulation:
    draw, train = options.pop("draw", None), {"lr": 0.1, "epochs": 2, "batch_size": 4, **options.pop("train", {})}
    return Simulation("perfedmask", blobs(clients), module=module or Deep(), draw=draw, train=train, **options).run(
        rounds
    )


WEAK = {"capability": [1.0, 0.6, 0.3], "mask": "sequential"}
"""Sizes 45, 24, 15: all, the first, the last of the layers that fit are 111, 100, and 010."""


def test_a_layer_has_its_norm_and_the_head_is_none():
    made = run(rounds=0).method
    assert [layer.size for layer in made.layers] == [30 + 5 + 10, 24, 15]
    statistics = {"body.1.running_mean", "body.1.running_var"}
    assert [statistics & set(layer.names) for layer in made.layers] == [statistics, set(), set()]
    assert made.body_size == 84
    assert text(run(rounds=0, **WEAK).method.masks) == "111 100 010"


def test_a_model_may_declare_its_layers():
    model = Deep()
    model.layer_groups = [("body.0", "body.1", "body.3"), "body.5"]
    assert [layer.size for layer in run(rounds=0, module=model).method.layers] == [69, 15]
    model.layer_groups = ["body.0", "body.1"]
    with pytest.raises(ConfigError, match=r"the model's layer_groups leave out 'body.3.weight'"):
        run(rounds=0, module=model)


def test_a_model_without_a_body_is_refused():
    class HeadOnly(Mlp):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Identity(), nn.Linear(6, 4)

    with pytest.raises(ConfigError, match="no parameters outside its head"):
        run(rounds=0, module=HeadOnly())


def test_a_layer_is_averaged_over_those_who_trained_it():
    names = ["a", "b", "c", "head"]
    slots = tuple(Slot(f"{n}.weight", (1,), i, i + 1, head=n == "head") for i, n in enumerate(names))
    layout = Layout(slots, (), (), "head", groups={s.name: i for i, s in enumerate(slots)})
    made = PerFedMask(PerFedMask.Options(), Context(layout, None, 0, 10, 2, (1, 2, 1)))  # type: ignore[arg-type]
    nothing, none = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    initial = Weights(torch.tensor([7.0, 8, 9, 5]), nothing, none)
    server = made.start(initial)
    rows = [(1.0, 1, [1, 1, 0]), (2.0, 2, [1, 0, 0]), (6.0, 1, [1, 1, 0])]
    uploads = [
        Upload(
            i,
            samples,
            params=torch.full((3,), value),
            buffers=nothing,
            counters=none,
            layers=torch.tensor(layers, dtype=torch.uint8),
        )
        for i, (value, samples, layers) in enumerate(rows)
    ]
    made.aggregate(server, uploads)
    assert close(server.params, [2.75, 3.5, 9])
    assert close(made.global_model(server, initial).params, [2.75, 3.5, 9, 5])


def test_only_who_took_part_counts_and_a_layer_nobody_trained_stays():
    simulation = run(rounds=1, draw=lambda t: [1, 2], **WEAK)
    initial, layout = simulation.initial.params, simulation.context.layout
    now = simulation.method.global_model(simulation.server, simulation.initial).params
    trained = [simulation.log[0].after_fit[i].params for i in (1, 2)]
    first, second, third = slice(0, 45), slice(45, 69), slice(69, 84)
    assert torch.equal(now[first], trained[0][first])
    assert torch.equal(now[second], trained[1][second])
    assert torch.equal(now[third], initial[third])
    assert torch.equal(now[layout.mask("head")], initial[layout.mask("head")])


@pytest.mark.parametrize(("weighting", "share"), [("samples", 9 / 26), ("uniform", 0.5)])
def test_weights_of_a_layer(weighting, share):
    simulation = run(rounds=1, weighting=weighting, **WEAK)
    a, b = (simulation.log[0].after_fit[i].params[:45].double() for i in (0, 1))
    assert torch.allclose(simulation.server.params[:45].double(), share * a + (1 - share) * b, rtol=0, atol=1e-6)


def test_statistics_go_with_their_layer():
    simulation = run(rounds=1, **WEAK)
    seen = simulation.log[0]
    assert torch.equal(seen.after_fit[2].buffers, simulation.initial.buffers)
    assert seen.after_fit[2].counters.tolist() == [0]
    mean = (9 * seen.after_fit[0].buffers.double() + 17 * seen.after_fit[1].buffers.double()) / 26
    assert torch.allclose(simulation.server.buffers.double(), mean, rtol=0, atol=1e-6)


class FrozenHead(FedAvg):
    """FedAvg whose head never gets a gradient."""

    def train(self, client, received):
        body = Move(self.context.layout.mask("body"))
        return self.upload(client, client.fit(received, client.train, move=body))


@pytest.mark.parametrize("mask", ["optimised", "sequential"])
def test_with_full_capability_it_is_fedavg_with_a_frozen_head(mask):
    draw = lambda t: [t % 3, 2] if t % 3 != 2 else [0]  # noqa: E731
    train = {"lr": 0.1, "epochs": 2, "batch_size": 4}
    ours, theirs = (
        Simulation(kind, blobs(SIZES), module=Deep(), draw=draw, train=train, **options).run(3)
        for kind, options in (("perfedmask", {"mask": mask, "ft_epochs": 0}), (FrozenHead, {}))
    )
    assert_same(ours, theirs)
    one, other = (made.method.global_model(made.server, made.initial) for made in (ours, theirs))
    assert equal(one, other)


def test_equal_counts_make_uniform_weights():
    assert_same(run(clients=[12, 12, 12], **WEAK), run(clients=[12, 12, 12], weighting="uniform", **WEAK))


def test_without_fine_tuning_all_hold_the_global_model():
    simulation = run(ft_epochs=0, **WEAK)
    now = simulation.method.global_model(simulation.server, simulation.initial)
    assert all(equal(simulation.log[-1].after_agg[i], now) for i in range(3))


@pytest.mark.parametrize("mask", ["optimised", "sequential"])
def test_invariants_of_a_run(mask):
    train = {"momentum": 0.9, "weight_decay": 0.1, "keep_optimizer": True}
    simulation = run(rounds=0, capability=[1.0, 0.6, 0.3], mask=mask, train=train)
    layout, made = simulation.context.layout, simulation.method
    head, start = layout.mask("head"), simulation.initial
    for _ in range(3):
        received = made.global_model(simulation.server, start)
        seen = simulation.round()
        for i in range(3):
            trained = made.trained_by(torch.from_numpy(made.masks[i]))
            inside, buffers = trained.params, trained.buffers
            fitted = seen.after_fit[i]
            assert torch.equal(fitted.params[head], start.params[head])
            assert torch.equal(fitted.params[~inside], received.params[~inside])
            assert torch.equal(fitted.buffers[~buffers], received.buffers[~buffers])
            assert (fitted.params != received.params)[inside].float().mean() > 0.5
            assert inside.sum() <= [1.0, 0.6, 0.3][i] * 84 + 1e-6
            assert seen.traces[i, "trained_share"] == pytest.approx(int(inside.sum()) / 84)


def test_fine_tuning_is_of_a_copy_of_the_whole_model_and_is_dropped():
    simulation = run(rounds=2, **WEAK)
    now = simulation.method.global_model(simulation.server, simulation.initial)
    head = simulation.context.layout.mask("head")
    for i in range(3):
        client = simulation.client(i, 2)
        tuned = client.fit(now, client.train, "ft", Amount(epochs=5))
        assert equal(simulation.personal(i), tuned)
        assert (tuned.params != now.params)[head].all()
        assert (tuned.buffers != now.buffers).all()
    never = Simulation("perfedmask", blobs(SIZES), module=Deep(), train={"epochs": 2, "batch_size": 4}, **WEAK)
    never.run(2, evaluate=False)
    assert_same(simulation, never, ["after_fit"])


def test_the_rate_of_fine_tuning_is_the_rounds_unless_given():
    decayed = run(rounds=2, train={"lr_decay": 0.5})
    given = run(rounds=2, train={"lr_decay": 0.5}, ft_lr=0.1)
    assert equal(decayed.log[1].after_agg[0], given.log[1].after_agg[0])
    other = run(rounds=2, train={"lr_decay": 0.5}, ft_lr=0.2)
    assert not equal(decayed.log[1].after_agg[0], other.log[1].after_agg[0])
    assert_same(decayed, other, ["after_fit"])


def test_bytes():
    simulation = run(draw=lambda t: [0, 1] if t == 1 else [0, 1, 2], **WEAK)
    sent = [4 * (84 + 10), 4 * (45 + 10), 4 * 24]
    for t, seen in enumerate(simulation.log, 1):
        for i in seen.uploads:
            first = t == 1 or (t == 2 and i == 2)
            assert seen.up[i] == sent[i]
            assert seen.down[i] == 4 * (84 + 10) + (4 * 16 if first else 0)


def test_a_client_that_can_train_nothing_uploads_nothing_and_is_named():
    simulation = run(capability=[1.0, 1.0, 0.1])
    assert text(simulation.method.masks) == "111 111 000"
    (line,) = simulation.method.check()
    assert "1 client, e.g. client 2, can train no layer and upload nothing" in line
    assert "has 15 parameters, method.capability must reach 0.179" in line
    before = simulation.method.global_model(simulation.server, simulation.initial)
    seen = simulation.round()
    assert equal(seen.after_fit[2], before)
    assert seen.up[2] == 0
    assert list(run(rounds=0).method.check()) == []


def test_capabilities_for_another_number_of_clients_are_refused():
    with pytest.raises(ConfigError, match=r"method.capability: 2 numbers for 3 clients"):
        run(rounds=0, capability=[1.0, 0.5])


@pytest.mark.parametrize(
    "option",
    [
        {"capability": 0.0},
        {"capability": [0.5, 1.1]},
        {"mask": "random"},
        {"ft_epochs": -1},
        {"ft_lr": 0.0},
        {"buffers": "private"},
    ],
)
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        PerFedMask.Options(**option)


def test_a_newcomer_tunes_the_whole_model_without_a_mask():
    train = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}
    run = Simulation("perfedmask", targets(1.0), module=Product(), train=train, capability=[1.0])
    assert close(run.joined(targets(1.0)[0], 0).params, [1, 1])
    assert close(run.joined(targets(1.0)[0], 2).params, [1.1869, 1.1869])
