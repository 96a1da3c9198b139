"""What is said before round 1: values that nothing heeds, and tensors that are on two sides at once."""

from dataclasses import replace

import pytest
from torch import nn

from fedbench.aggregation.rules import make
from fedbench.config import AggregatorConfig
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.runtime.warnings import (
    config_warnings,
    method_warnings,
    warn_of_engine,
    warn_of_instance,
    warn_of_sample,
    warn_of_tied_head,
)
from tests.runtime.networks import Awkward
from tests.runtime.rounds import driver, small

OWN = {"name": "tests.runtime.networks:Awkward", "head": "classifier"}


class Tied(Awkward):
    """A layer before the head has its weight."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, classes), nn.Linear(classes, classes))
        self.classifier = nn.Linear(classes, classes)
        self.classifier.weight = self.body[2].weight  # type: ignore[assignment]


def lines_of(method: str = "fedavg", **more) -> list[str]:
    resolved = resolve(small(method, **more))
    return [*config_warnings(resolved.config), *warn_of_tied_head(driver(resolved).method)]


@pytest.mark.parametrize(
    ("train", "keys"),
    [
        ({"lr": 5}, "train.lr = 5"),
        ({"momentum": 0.9, "weight_decay": 0}, "train.momentum = 0.9, train.weight_decay = 0"),
    ],
)
def test_values_that_a_models_own_optimiser_does_not_know_are_named(train, keys):
    line = f"{keys}: without effect: the model's configure_optimizers makes the steps; set it there, scale its rates "
    assert lines_of(model=OWN, train=train) == [f"{line}with --train.lr_scale, or choose --train.optimizer sgd"]
    assert lines_of(model=OWN, train=train | {"optimizer": "sgd"}) == lines_of(train=train) == []


@pytest.mark.parametrize(
    ("method", "more", "why"),
    [
        ("fedavg", {}, "it scales the rates of a model's own optimiser; with train.optimizer = sgd set train.lr"),
        ("per-fedavg", {"model": OWN}, "per-fedavg makes plain steps of its own"),
        ("co-pfl", {"model": OWN}, "co-pfl makes steps by an optimiser of its own; set train.lr"),
    ],
)
def test_a_factor_of_rates_is_said_where_no_models_own_optimiser_steps(method, more, why):
    (line,) = lines_of(method, train={"lr_scale": 2}, **more)
    assert line.endswith(f"train.lr_scale = 2: without effect: {why}")
    assert lines_of(model=OWN, train={"lr_scale": 2}) == []


def test_an_instance_of_a_model_is_said_to_be_the_same_for_every_seed():
    resolved = resolve(small(model={"name": Awkward(10), "head": "classifier"}))
    (line,) = warn_of_instance(resolved.config.model.name)
    assert "every client starts from its weights for every seed" in line
    assert line in driver(resolved).warnings
    assert warn_of_instance(OWN["name"]) == warn_of_instance("mlp") == []


def test_a_method_that_brings_its_optimiser_heeds_them():
    assert lines_of("co-pfl", model=OWN, train={"optimizer": "module", "lr": 5}) == []


def test_what_nobody_set_is_not_named():
    assert lines_of(model=OWN, train={"lr_decay": 0.9}) == lines_of("fedrep", model=OWN, train={}) == []


@pytest.mark.parametrize(
    ("method", "side"),
    [
        ("fedper", "private, it stays at the clients"),
        ("fedrep", "shared, it travels"),
        ("lg-fedavg", "shared, it travels"),
    ],
)
def test_a_tensor_of_head_and_body_is_named_with_its_side(method, side):
    model = {"name": "tests.runtime.test_warnings:Tied", "head": "classifier"}
    (line,) = lines_of(method, model=model, train={})
    assert line.startswith("body.2.weight belongs to the head 'classifier' and to the body: ")
    assert line.endswith(f" counts it as {side}")
    assert lines_of("fedavg", model=model, train={}) == lines_of(method, model=OWN, train={}) == []


def test_what_method_and_aggregator_say_is_said_before_round_1():
    resolved = resolve(small("fedprox", method__mu=30, aggregator={"name": "trimmed-mean", "share": 0.05}))
    lines = driver(resolved).warnings
    assert [line.split(":")[0] for line in lines] == ["fedprox", "aggregator trimmed-mean"]


def test_an_aggregator_is_refused_by_the_name_that_the_method_was_asked_for():
    resolved = resolve(small("fedcac"))
    method = driver(resolved).method
    assert method_warnings(method, "fedcac") == []
    method.context = replace(method.context, aggregator=make(AggregatorConfig(name="median")))
    with pytest.raises(ConfigError, match="the server half of method my-name does not average"):
        method_warnings(method, "my-name")


def test_a_sample_of_the_clients_is_said():
    assert warn_of_sample(10, 10) == []
    (line,) = warn_of_sample(1000, 100_000)
    assert line.startswith("scores are those of 1,000 of 100,000 clients")


@pytest.mark.parametrize(
    ("method", "train", "line"),
    [
        (
            "apfl",
            {"engine": "compiled"},
            "train.engine = compiled: apfl makes its steps itself, one client after another",
        ),
        ("fedavg", {"width": 4}, None),
        ("fedavg", {"engine": "loop", "width": 4}, "train.width = 4: without effect with train.engine = loop"),
        ("fedavg", {"engine": "compiled", "width": 4}, None),
        ("apfl", {}, None),
    ],
)
def test_what_rows_are_not_for(method, train, line):
    resolved = resolve(small(method, **{f"train__{key}": value for key, value in train.items()}))
    assert warn_of_engine(driver(resolved).method) == ([line] if line else [])


@pytest.mark.parametrize(
    ("method", "train", "lines"),
    [
        ("fedavg", {}, 1),
        ("fedavg", {"train__keep_optimizer": True}, 0),
        ("fedavg", {"train__optimizer": "sgd"}, 0),
        ("centralized", {}, 0),
        ("pfedme", {}, 0),
    ],
)
@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_a_schedule_that_begins_anew_in_every_round_is_named(method, train, lines, engine):
    train = {"train__optimizer": "module", "train__engine": "loop" if method == "pfedme" else engine, **train}
    resolved = resolve(small(method, model="tests.runtime.networks:Scheduled", **train))
    said = [line for line in driver(resolved).warnings if "schedule" in line]
    assert len(said) == lines
    assert all(line.startswith("MultiStepLR: the model's learning-rate schedule restarts") for line in said)


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ({"attack": {"share": 0.3, "scale": 2.0}}, ["attack.share = 0.3: without effect with attack.name = none"] * 2),
        ({"attack": {"name": "alie", "share": 0.3}}, []),
        (
            {"compression": {"name": "topk", "bits": 3}},
            ["compression.bits = 3: without effect with compression.name = topk"],
        ),
        ({"compression": {"name": "mask", "share": 0.3}}, []),
        ({"compression": {"share": 0.3}}, ["compression.share = 0.3: without effect with compression.name = none"]),
        ({"privacy": {"clip": 1.0, "delta": 0.1}}, ["privacy.delta = 0.1: without effect with privacy.noise = 0"]),
        ({"stragglers": {"work": 0.2}}, ["stragglers.work = 0.2: without effect with stragglers.share = 0"]),
        ({"stragglers": {"work": 0.2, "share": 0.1}}, []),
        ({"public": {"alpha": 0.1}}, ["public.alpha = 0.1: without effect with public.size = 0"]),
        (
            {"public": {"alpha": 0.1, "size": 20}},
            ["public.alpha = 0.1: without effect with public.balance = classes"],
        ),
        (
            {"data": {"augment": ["flip"], "crop_padding": 2}},
            ["data.crop_padding = 2: without effect with data.augment = flip"],
        ),
        (
            {"partition": {"noise_rate": 0.5}},
            ["partition.noise_rate = 0.5: without effect with partition.noise_clients = none"],
        ),
        ({"log_clients": True}, ["log_clients = True: without effect with loggers = none"]),
        (
            {"loggers": ["csv"], "wandb": {"project": "pfl"}},
            ["wandb.project = pfl: without effect with loggers = csv"],
        ),
        ({"train": {"steps": 5, "epochs": 2}}, ["train.epochs = 2: without effect: train.steps = 5 takes its place"]),
        (
            {"train": {"optimizer": "adam", "momentum": 0.9}},
            ["train.momentum = 0.9: without effect: train.optimizer = adam has none"],
        ),
        ({}, []),
    ],
)
def test_keys_that_have_no_effect_are_named(keys, lines):
    found = config_warnings(small(**keys))
    assert found[:1] == lines[:1]
    assert len(found) == len(lines)
