"""Attributes of modules that are neither parameters nor buffers."""

import random
from collections import Counter, defaultdict, deque
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning import LightningModule
from torch import nn
from torchmetrics import MeanMetric

from fedbench.module.attributes import Attributes


class Own:
    def __init__(self):
        self.seen, self.parent = [0], self


class Slotted:
    __slots__ = ("seen",)

    def __init__(self):
        self.seen = 0


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.teacher, self.turn = [nn.Sequential(nn.Linear(3, 2))], cycle([1, 2, 3])
        self.slotted, self.metrics, self.unknown = Slotted(), [MeanMetric()], torch.tensor([float("nan"), 1])
        self.body = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
        self.layers, self.mean = [self.body[0], self.body[0].weight], MeanMetric()
        self.register_buffer("center", torch.zeros(2))
        self.count, self.rate, self.name, self.best, self.average = 0, 0.5, "a", None, torch.zeros(2)
        self.outputs, self.past, self.by_class, self.known = [], deque([1]), {"a": [1]}, {1}
        self.totals, self.counts, self.array = defaultdict(int), Counter(), np.zeros(2)
        self.weights = torch.ones(2)
        self.own, self.space, self.stream = Own(), SimpleNamespace(x=1), torch.Generator()
        self.numpy, self.python = np.random.default_rng(0), random.Random(0)
        self.loss, self.step = nn.functional.cross_entropy, lambda x: x


CHANGES = {
    "count": lambda net: setattr(net, "count", 1),
    "rate": lambda net: setattr(net, "rate", 0.4),
    "name": lambda net: setattr(net, "name", "b"),
    "best": lambda net: setattr(net, "best", torch.ones(1)),
    "average": lambda net: net.average.add_(1),
    "outputs": lambda net: net.outputs.append(torch.ones(1)),
    "weights": lambda net: net.weights.data.add_(1),
    "teacher": lambda net: net.teacher[0][0].weight.data.mul_(0.9),
    "turn": lambda net: next(net.turn),
    "slotted": lambda net: setattr(net.slotted, "seen", 1),
    "metrics": lambda net: net.metrics[0].update(3),
    "unknown": lambda net: net.unknown.data.fill_(0),
    "past": lambda net: net.past.append(2),
    "by_class": lambda net: net.by_class["a"].append(2),
    "known": lambda net: net.known.add(2),
    "totals": lambda net: net.totals[3],
    "counts": lambda net: net.counts.update("a"),
    "array": lambda net: net.array.fill(1),
    "own": lambda net: net.own.seen.append(1),
    "space": lambda net: setattr(net.space, "x", 2),
    "stream": lambda net: torch.rand(1, generator=net.stream),
    "numpy": lambda net: net.numpy.random(),
    "python": lambda net: net.python.random(),
    "body.1.p": lambda net: setattr(net.body[1], "p", 0.1),
    "new": lambda net: setattr(net, "new", 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_step_leaves_in_an_attribute_is_undone(name):
    net = Net()
    attributes = Attributes(net)
    for _ in range(2):
        assert attributes.changed() == []
        CHANGES[name](net)
        assert attributes.changed() == attributes.restore() == [name]
    fresh, key = Net(), name.rpartition(".")[2]
    (owner, like) = (net.body[1], fresh.body[1]) if key == "p" else (net, fresh)
    assert hasattr(owner, key) == hasattr(like, key)
    if name not in ("new", "own", "stream", "numpy", "python", "slotted", "turn", "teacher"):
        assert str(getattr(owner, key)) == str(getattr(like, key))
    assert (net.own.seen, net.slotted.seen, next(net.turn)) == ([0], 0, 1)
    assert net.numpy.random() == fresh.numpy.random()
    assert net.python.random() == fresh.python.random()
    assert torch.rand(1, generator=net.stream) == torch.rand(1, generator=fresh.stream)


def test_parameters_buffers_modes_and_metrics_are_left_alone():
    net = Net()
    attributes = Attributes(net)
    with torch.no_grad():
        net.body[0].weight.add_(1)
        net.center += 1
    net.mean.update(3)
    net.eval()
    assert attributes.restore() == []
    assert (net.center.tolist(), net.mean.compute(), net.training) == ([1, 1], 3, False)
    net.layers.append(1)
    assert attributes.restore() == ["layers"]
    assert net.layers[0] is net.body[0]
    assert net.layers[1] is net.body[0].weight


def test_what_layers_of_pytorch_compute_or_keep_in_every_pass_is_left_alone():
    class Layers(LightningModule):
        def __init__(self):
            super().__init__()
            self.normed = nn.utils.weight_norm(nn.Linear(4, 4))
            self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
            self.lstm = nn.LSTM(4, 4, batch_first=True)
            self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

        def forward(self, x):
            return self.encoder(self.lstm(self.spectral(self.normed(x)))[0])

    net = Layers()
    attributes = Attributes(net)
    for _ in range(2):
        net(torch.ones(2, 3, 4)).sum().backward()
        assert attributes.restore() == []


def test_optimisers_of_a_fit_are_undone_without_a_word():
    net = Net()
    attributes = Attributes(net)
    net.adam = torch.optim.Adam(net.parameters())
    net.best = torch.optim.lr_scheduler.StepLR(net.adam, 1)
    assert attributes.restore() == []
    assert not hasattr(net, "adam")
    assert net.best is None


def test_a_tensor_at_the_place_in_memory_of_an_earlier_one_is_another():
    net = Net()
    attributes = Attributes(net)
    for _ in range(60):
        net.average = net.average + 1
        assert attributes.changed() == ["average"]


def test_a_teacher_that_is_no_submodule_begins_every_fit_with_its_first_weights():
    net = Net()
    attributes, before = Attributes(net), net.teacher[0][0].weight.detach().clone()
    for _ in range(3):
        for own in net.teacher[0].parameters():
            own.data.add_(1)
        assert attributes.restore() == ["teacher"]
        assert torch.equal(net.teacher[0][0].weight, before)
    assert attributes.restore() == []
