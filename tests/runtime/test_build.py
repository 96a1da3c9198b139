"""Every process makes the same parts of a configuration, whatever it has drawn before."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from fedbench.config import Config
from fedbench.data.partitions import partition
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedprox import FedProx
from fedbench.models import build
from fedbench.models.mlp import Mlp
from fedbench.runtime.build import RunParts, build_learner, build_parts, drawn_model
from tests.runtime.networks import Taught
from tests.runtime.rounds import small


def parts(method: str = "fedavg", seed: int = 0, **more) -> RunParts:
    resolved = resolve(small(method, **more))
    config, dataset = resolved.config, resolved.dataset
    return build_parts(resolved, partition(dataset, config, seed), seed)


def test_the_start_model_is_that_of_the_seed_whatever_was_drawn_before():
    start = parts().learner.initial().params
    torch.manual_seed(9)
    before = torch.get_rng_state()
    assert torch.equal(parts("fedper").learner.initial().params, start)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(parts(seed=1).learner.initial().params, start)


def test_the_start_model_of_an_instance_is_the_instance_for_every_seed():
    module = Mlp((1, 8, 8), 10, hidden=4)
    first, other = (parts(seed=seed, model={"name": module}) for seed in (0, 1))
    assert torch.equal(first.learner.initial().params, nn.utils.parameters_to_vector(module.parameters()))
    assert torch.equal(first.learner.initial().params, other.learner.initial().params)
    with pytest.raises(ConfigError, match=r"Mlp@.* is an instance: method fedavg draws several start models, and all "):
        drawn_model(first.run, "cpu", 1)


@pytest.mark.parametrize(("participation", "drawn"), [(1.0, 10), (0.3, 3), (2, 2)])
def test_both_halves_know_the_sizes_of_the_run(participation, drawn):
    made = parts(participation=participation, public={"size": 40})
    resolved = resolve(small(public={"size": 40}))
    config, dataset = resolved.config, resolved.dataset
    rows = partition(dataset, config, 0)
    assert made.context.sizes == tuple(len(client.train) for client in rows.clients)
    assert (made.context.clients, made.context.participants_per_round, made.context.public) == (10, drawn, 40)
    assert (made.context.classes, made.context.rounds, made.context.seed) == (10, 4, 0)
    assert parts().context.public == 0


def test_the_method_has_the_options_that_were_asked_for():
    made = parts("fedprox", method__mu=0.5)
    assert isinstance(made.method, FedProx)
    assert made.method.options.mu == 0.5
    assert made.method.context is made.context


def test_the_true_labels_of_the_public_set_grade_a_vote_and_nothing_else():
    resolved = resolve(small(public={"size": 40}))
    config, dataset = resolved.config, resolved.dataset
    true = torch.as_tensor(dataset.labels[partition(dataset, config, 0).public])
    accuracy = parts(public={"size": 40}).context.label_accuracy
    wrong = torch.cat([true[:10], (true[10:] + 1) % 10])
    assert (accuracy(true), accuracy(wrong)) == (1.0, 0.25)
    assert parts().context.label_accuracy is None


def test_weights_of_double_precision_are_taken_to_the_bit(tmp_path):
    state = {
        name: tensor.double() + 1e-12 for name, tensor in build("mlp", (1, 8, 8), 10, hidden=16).state_dict().items()
    }
    torch.save(state, tmp_path / "w.pt")
    resolved = resolve(small(model__weights=tmp_path / "w.pt", train__precision="64-true"))
    learner = build_learner(resolved, 0)
    found = learner.flat.state_dict(learner.initial())
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("name", ["BuiltBySetup", "BuiltByConfigureModel"])
def test_layers_that_hooks_build_are_those_of_the_seed_and_take_weights(name, tmp_path):
    model = {"name": f"tests.runtime.networks:{name}"}
    start = parts(model=model).learner.initial().params
    torch.manual_seed(9)
    assert torch.equal(parts("fedprox", model=model).learner.initial().params, start)
    assert not torch.equal(parts(model=model, seed=1).learner.initial().params, start)
    state = {"net.weight": torch.full((10, 64), 0.5), "net.bias": torch.zeros(10)}
    torch.save(state, tmp_path / "w.pt")
    given = parts(model=model | {"weights": tmp_path / "w.pt"}).learner.initial().params
    assert given.unique().tolist() == [0.0, 0.5]


def test_copies_are_known_before_weights_part_them(tmp_path):
    module = Taught()
    with torch.no_grad():
        module.teacher.weight.add_(1)
    torch.save(module.state_dict(), tmp_path / "w.pt")
    resolved = resolve(small(model={"name": "tests.runtime.networks:Taught", "weights": tmp_path / "w.pt"}))
    assert build_learner(resolved, 0).flat.copies == {"teacher": "net"}


def test_built_in_models_refuse_tokens(monkeypatch):
    module = ModuleType("mine")
    module.make = lambda: tuple((np.ones((n, 5), np.int64), np.arange(n) % 2) for n in (40, 8))
    monkeypatch.setitem(sys.modules, "mine", module)
    run = resolve(Config(data="mine:make", partition="iid", model="mlp", resources={"hosts": 0}))
    with pytest.raises(ConfigError, match=r"mlp: takes numbers, but the samples of mine:make are tokens; .* = feature"):
        build_learner(run, 0)
