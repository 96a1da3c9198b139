"""fedbn: what the specification promises."""

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

from fedbench import models
from fedbench.config import TrainConfig
from fedbench.methods.fedbn import FedBN
from fedbench.methods.server import Context
from fedbench.module.layout import Layout
from fedbench.module.weights import Weights
from tests.methods.simulator import Data, Mlp, Simulation, assert_same, blobs, close

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731


class Classifier(LightningModule):
    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)


class Scaled(Classifier):
    """A linear layer of two weights under a BatchNorm of one feature."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 1, bias=False), nn.BatchNorm1d(1)


class Norms(Classifier):
    """Nothing but a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.norm(x)[:, :4]


class Others(Classifier):
    """Every kind of normalisation, and a buffer that belongs to none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return self.head(self.first(x))


def after_given_fits(**options):
    """One round in which two clients with 1 and 3 images come back with given models."""
    run = Simulation("fedbn", blobs([1, 3]), module=Scaled(), **options)
    trained = {
        0: Weights(torch.tensor([1.0, 2, 1, 0]), torch.tensor([0.0, 1]), torch.tensor([5])),
        1: Weights(torch.tensor([5.0, 6, 3, 0]), torch.tensor([4.0, 1]), torch.tensor([7])),
    }
    run.learner.fit = lambda fit: trained[fit.data.key[1]]
    return run.run(1).log[0].after_agg


@pytest.mark.parametrize(
    ("options", "linear", "scale", "mean", "counters"),
    [
        ({}, (4, 5), (1, 3), (0, 4), (5, 7)),
        ({"weighting": "uniform"}, (3, 4), (1, 3), (0, 4), (5, 7)),
        ({"private": "stats"}, (4, 5), (2.5, 2.5), (0, 4), (5, 7)),
        ({"private": "none"}, (4, 5), (2.5, 2.5), (3, 3), (7, 7)),
    ],
)
def test_what_is_averaged(options, linear, scale, mean, counters):
    for i, seen in after_given_fits(**options).items():
        assert close(seen.params[:2], linear)
        assert close(seen.params[2], scale[i])
        assert close(seen.buffers, [mean[i], 1])
        assert int(seen.counters) == counters[i]


def test_statistics_move_with_the_layers_momentum():
    class Plain(Classifier):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(x)

    clients = [Data(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0, 1]))]
    run = Simulation("fedbn", clients, module=Plain(), train={"batch_size": "full", "epochs": 1}).run(1)
    assert close(run.log[0].after_agg[0].buffers, [0.2, 0.4, 1.1, 1.7])


@pytest.mark.parametrize("private", ["all", "stats"])
def test_without_such_layers_it_is_fedavg(private):
    runs = [
        Simulation(m, blobs([9, 17, 12]), draw=SOME, **o).run(3)
        for m, o in (("fedbn", {"private": private}), ("fedavg", {}))
    ]
    assert_same(*runs)
    assert [seen.down for seen in runs[0].log] == [seen.down for seen in runs[1].log]
    assert torch.equal(runs[0].method.global_model(runs[0].server, runs[0].initial).params, runs[1].server.params)


def test_with_everything_private_it_is_local_training():
    assert_same(*[Simulation(m, blobs([9, 17, 12]), module=Norms(), draw=SOME).run(4) for m in ("fedbn", "local")])


def test_one_client_is_local_training():
    assert_same(*[Simulation(m, blobs([21]), module=Mlp(norm=True)).run(3) for m in ("fedbn", "local")])


@pytest.mark.parametrize("private", ["all", "stats", "none"])
def test_the_first_fit_is_fedavgs(private):
    run = Simulation("fedbn", blobs([9, 17]), module=Mlp(norm=True), private=private).run(1)
    plain = Simulation("fedavg", blobs([9, 17]), module=Mlp(norm=True)).run(1)
    assert_same(run, plain, ["after_fit"])


def test_private_statistics_never_enter_the_loss():
    stats, none, whole = (
        Simulation("fedbn", blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, private=p).run(4)
        for p in ("stats", "none", "all")
    )
    for one, other in zip(stats.log, none.log, strict=True):
        for point in ("after_fit", "after_agg"):
            left, right = getattr(one, point), getattr(other, point)
            assert all(torch.equal(left[i].params, right[i].params) for i in left)
        assert not torch.equal(one.after_agg[0].buffers, other.after_agg[0].buffers)
    assert not torch.equal(whole.server.params, none.server.params[~whole.method.private_params.mask])


def test_the_own_part_changes_only_in_the_own_fit():
    run = Simulation("fedbn", blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, train={"epochs": 3}).run(4)
    norm = run.context.layout.mask("norm")
    own = dict.fromkeys(range(3), run.initial)
    fits = dict.fromkeys(range(3), 0)
    for seen in run.log:
        own |= seen.after_fit
        for i, agg in seen.after_agg.items():
            fits[i] += i in seen.after_fit
            assert torch.equal(agg.params[norm], own[i].params[norm])
            assert torch.equal(agg.buffers, own[i].buffers)
            assert int(agg.counters) == 3 * fits[i] * (1, 2, 2)[i]  # a last batch of one is dropped
            assert bool((agg.buffers[5:] > 0).all())
            assert torch.equal(agg.params[~norm], seen.after_agg[0].params[~norm])


def test_clients_that_never_trained_have_the_initial_layers_and_are_counted():
    run = Simulation("fedbn", blobs([9, 17, 12]), module=Mlp(norm=True), draw=lambda t: [t - 1]).run(2)
    norm = run.context.layout.mask("norm")
    absent = run.log[1].after_agg[2]
    assert torch.equal(absent.params[norm], run.initial.params[norm])
    assert torch.equal(absent.params[~norm], run.log[1].after_agg[0].params[~norm])
    assert absent.buffers.tolist() == [0] * 5 + [1] * 5
    assert int(absent.counters) == 0
    assert [seen.traces[-1, "untrained"] for seen in run.log] == [2, 1]


def test_a_client_with_one_image_never_moves_its_statistics():
    run = Simulation("fedbn", blobs([1, 9]), module=Mlp(norm=True)).run(2)
    assert torch.equal(run.log[1].after_agg[0].buffers, run.initial.buffers)
    assert not torch.equal(run.log[1].after_agg[0].params, run.log[1].after_agg[1].params)


@pytest.mark.parametrize(("types", "private"), [("batch", 8), ("all", 24)])
def test_which_layers_are_private(types, private):
    run = Simulation("fedbn", blobs([9, 17, 12]), module=Others(), norm_types=types, draw=lambda t: [0, 1]).run(2)
    layout = run.context.layout
    own = layout.mask("norm" if types == "batch" else "any_norm")
    one, other = (run.log[1].after_agg[i] for i in (0, 1))
    assert int(own.sum()) == private
    assert torch.equal(one.params[~own], other.params[~own])
    assert not any((one.params[own] == other.params[own]).tolist()[-8:])
    assert torch.equal(one.buffers[:3], other.buffers[:3])
    assert not torch.equal(one.buffers[3:], other.buffers[3:])
    assert [int(run.log[1].after_agg[i].counters) for i in range(3)] == [2 * 2 * 1, 2 * 2 * 2, 0]
    assert run.log[0].up[0] == run.log[0].down[0] == 4 * (layout.size - private + 3)


@pytest.mark.parametrize(("private", "size"), [("all", 59), ("stats", 69), ("none", 79)])
def test_bytes(private, size):
    run = Simulation("fedbn", blobs([9, 17]), module=Mlp(norm=True), private=private).run(2)
    assert run.context.layout.size == 69
    assert all(set(seen.up.values()) == set(seen.down.values()) == {4 * size} for seen in run.log)


def test_the_norms_of_shortcuts_are_found():
    layout = Layout.of(models.build("resnet8", input_shape=(3, 32, 32), classes=10))
    context = Context(layout=layout, train=TrainConfig(), seed=0, planned_rounds=1, classes=10, sizes=(1,))
    method = FedBN(FedBN.Options(), context)
    assert (method.private_params.size, method.private_buffers.size) == (2688, 2688)
    assert method.shared_params.size == layout.size - 2688


def test_a_model_without_such_layers_is_told_of():
    said = Simulation("fedbn", blobs([9])).method.check()
    assert list(said) == ["fedbn: the model has no BatchNorm layer with numbers of its own, so this is fedavg"]
    assert not list(Simulation("fedbn", blobs([9]), module=Mlp(norm=True)).method.check())
