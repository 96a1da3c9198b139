"""From what was asked to what is run: defaults fill gaps and never overrule."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench.config import Config
from fedbench.errors import ConfigError, RunError
from fedbench.installation import DEPENDENCIES
from fedbench.jobs.resolve import check_run, resolve, takes_models
from fedbench.jobs.run_names import default_name
from fedbench.methods import load
from fedbench.runtime.ray import cluster
from fedbench.studies.run import run
from tests.runtime.networks import Awkward
from tests.runtime.rounds import small


def resolved(**asked) -> Config:
    return resolve(Config(**asked)).config


def test_what_was_asked_is_left_as_it_is():
    config = small("centralized")
    before = config.model_dump()
    resolve(config)
    assert config.model_dump() == before


def test_a_methods_own_training_defaults_apply_unless_the_key_is_set():
    assert not resolved(method="fedavg").train.keep_optimizer
    assert resolved(method="centralized").train.keep_optimizer
    assert not resolved(method="centralized", train={"keep_optimizer": False}).train.keep_optimizer
    assert resolved(method="centralized", train={"lr": 0.5}).train.keep_optimizer


def test_only_a_set_that_its_publisher_vouches_for_is_known_by_its_name(tmp_path):
    assert resolved(data="digits").data.content is None
    names = []
    for first in (0.0, 1.0):
        for part in ("train", "test"):
            (tmp_path / part).mkdir(exist_ok=True)
            of_writer = {"x": [[first] * 784, [0.5] * 784], "y": [0, 1]}
            made = {"users": ["f0"], "num_samples": [2], "user_data": {"f0": of_writer}}
            (tmp_path / part / "all_data.json").write_text(json.dumps(made))
        config = resolved(data={"name": "femnist", "root": tmp_path}, partition={"name": "iid", "clients": 1})
        names.append(default_name(config))
    assert names[0] != names[1]


def test_every_option_of_the_method_is_written_out():
    assert resolved(method={"name": "fedprox", "mu": 0.5}).method.options["mu"] == 0.5
    assert resolved(method="fedprox").method.options["mu"] == 0.01
    assert "mu" not in resolved(method="fedavg").method.options


def test_nothing_is_left_automatic():
    config = resolved()
    assert (config.model.name, config.model.options) == ("mlp", {"hidden": [64]})
    assert (config.train.optimizer, config.train.memory_format) == ("sgd", "contiguous")
    assert isinstance(config.resources.hosts, int)
    assert isinstance(config.resources.gpus_per_host, float)
    assert "auto" not in str(config.decisive() | {"data": None})  # the task is what the targets are, whoever reads them


def test_a_users_module_brings_its_own_optimiser():
    model = {"name": "tests.runtime.networks:Awkward", "head": "classifier"}
    assert resolved(model=model).train.optimizer == "module"
    assert resolved(model=model, train={"optimizer": "adam"}).train.optimizer == "adam"


def test_a_resolved_configuration_is_its_own():
    config = resolved(method="fedcac")
    assert resolve(Config(**config.model_dump(mode="json"))).config.model_dump() == config.model_dump()


@pytest.mark.parametrize(
    ("free", "machines", "hosts", "gpus", "layout"),
    [
        ({"CPU": 32.0, "GPU": 2.0}, [{}, {"CPU": 16, "GPU": 1}, {"CPU": 16, "GPU": 1}], 4, 0.5, "contiguous"),
        ({"CPU": 9.0, "GPU": 2.0}, [{"CPU": 8}, {"CPU": 1, "GPU": 2}], 1, 1, "contiguous"),
        ({"CPU": 30.0}, [{}, {"CPU": 16, "GPU": 1}, {"CPU": 16, "GPU": 1}], 1, 1, "contiguous"),
        ({"CPU": 7.0}, [{"CPU": 8}], 7, 0, "channels_last"),
        ({}, [{}], 1, 0, "channels_last"),
    ],
)
def test_on_a_cluster_it_is_the_clusters_room_that_counts(free, machines, hosts, gpus, layout, monkeypatch):
    """Clients are never in the process of the command, whose machine may be a small head; busy GPUs are waited for."""
    monkeypatch.setattr(cluster, "cluster_offer", lambda address: cluster.Offer(free, machines))
    config = resolved(resources={"address": "10.0.0.1:6379"}, model="avgcnn")
    assert (config.resources.hosts, config.resources.gpus_per_host) == (hosts, gpus)
    assert config.train.memory_format == layout


def test_without_ray_it_is_this_process_unless_hosts_are_asked_for(monkeypatch, caplog):
    monkeypatch.setitem(DEPENDENCIES, "ray", {"no_such_ray": "Ray"})
    monkeypatch.setattr("fedbench.jobs.resolve.cores", lambda: 8)
    caplog.set_level("INFO", "fedbench")
    assert resolved().resources.hosts == 0
    assert "because Ray is not installed (pip install fedbench-pfl)" in caplog.text
    with pytest.raises(ConfigError, match=r"Ray is not installed: .*, or use --hosts 0"):
        run(small("fedavg", resources__hosts=2))


def test_without_wandb_its_logger_is_refused_before_round_1(monkeypatch):
    monkeypatch.setitem(DEPENDENCIES, "wandb", {"no_such_wandb": "W&B"})
    with pytest.raises(ConfigError, match=r"^W&B is not installed: pip install fedbench-pfl$"):
        resolved(loggers=["wandb"])


def test_no_more_hosts_than_take_part():
    assert resolved(participation=0.1).resources.hosts in (0, 1)
    assert resolved(resources={"hosts": 3}).resources.hosts == 3


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"method": {"name": "fedprox", "nu": 1}}, "unknown key method.nu: did you mean mu?"),
        ({"method": {"name": "fedprox", "mu": -1}}, "method.mu = -1"),
        ({"participation": 11}, "participation = 11: there are 10 clients"),
        ({"method": "fedmosaic"}, "needs a public unlabelled set"),
        ({"model": {"name": "mlp", "classes": 3}}, "model.classes: decided by the data"),
    ],
)
def test_what_makes_no_sense_is_one_line(asked, line):
    with pytest.raises(ConfigError) as error:
        resolved(**asked)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "more", "line"),
    [
        ("fedper", {"model": {"name": "tests.runtime.networks:Awkward"}}, "head"),
        (
            "fedavg",
            {"model": {"name": "tests.runtime.networks:Awkward", "head": "classifier"}, "train__batch_size": 1},
            "train.batch_size = 1: the model has BatchNorm layers",
        ),
    ],
)
def test_models_and_methods_that_do_not_fit_are_refused_before_round_1(method, more, line):
    with pytest.raises(ConfigError) as error:
        check_run(resolve(small(method, **more)))
    assert line in str(error.value)


def test_partitions_of_all_seeds_are_drawn_and_methods_share_them():
    one, other = (check_run(resolve(small(method, seeds=[0, 1]))) for method in ("fedavg", "local"))
    assert list(one) == [0, 1]
    assert [one[s].fingerprint() for s in one] == [other[s].fingerprint() for s in other]
    assert one[0].fingerprint() != one[1].fingerprint()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            dict(partition={"name": "dirichlet", "clients": 4}),
            "it needs classes, but the targets of data diabetes are",
        ),
        (dict(partition={"name": "iid", "clients": 4, "flip_clients": [0]}), "are numbers; leave it empty"),
        (dict(partition="iid", data={"name": "diabetes", "augment": ["flip"]}), "diabetes holds no images"),
        (
            dict(partition="iid", evaluate={"by": ["class"]}),
            "evaluate.by = class: data diabetes has no such groups",
        ),
        (
            dict(data="digits", evaluate={"by": ["class", "domain"]}),
            "evaluate.by = domain: data digits has no such groups; leave it out",
        ),
        (
            dict(partition="iid", method={"name": "apfl", "mixing": "logits"}),
            "method.mixing = 'logits': works on class",
        ),
        (dict(partition="iid", method={"name": "fedphp", "transfer": "kd"}), "method.transfer = 'kd': works on class"),
        (
            dict(partition="iid", method={"name": "fedphp", "predictor": "ensemble"}),
            "method.predictor = 'ensemble': works on class scores, and the targets are numbers",
        ),
        (dict(partition="iid", model="avgcnn"), "model avgcnn: needs images, but samples have shape (10,)"),
    ],
)
def test_what_needs_classes_or_images_is_refused_without_them(more, told, tmp_path):
    with pytest.raises(ConfigError) as error:
        run(Config(**{"data": "diabetes", "out": tmp_path / "out", "resources": {"hosts": 0}, **more}))
    assert told in str(error.value)
    assert not (tmp_path / "out").exists()


class Tokens:
    """Rows of words, as whole numbers."""

    def __init__(self, train: bool = True) -> None:
        self.count = 80

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return (torch.arange(6) + row) % 7, row % 2


class Reader(Awkward):
    """Looks words up; its optimiser looks several times at a batch."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.body = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(24, 12))

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=3)


@pytest.mark.parametrize(
    ("method", "asked", "line", "other"),
    [
        (
            "pfedgate",
            {"method__gate_norm": "none"},
            "method pfedgate needs real-valued samples, but those of the data are tokens",
            {"method__gate": False},
        ),
        (
            "pfedfda",
            {},
            "method pfedfda records the features of each batch, but LBFGS of the model's",
            {"method__features_from": "final_pass"},
        ),
    ],
)
def test_methods_that_cannot_work_with_tokens_or_an_optimiser_that_looks_again_are_refused(
    method, asked, line, other, tmp_path
):
    kind = "tests.jobs.test_resolve"
    shared = dict(data=f"{kind}:Tokens", partition={"name": "iid", "clients": 2}, rounds=1)
    shared["model"] = {"name": f"{kind}:Reader", "head": "classifier"}
    with pytest.raises(ConfigError, match=line):
        check_run(resolve(small(method, **shared, **asked)))
    result = run(small(method, **shared, **(asked | other), out=str(tmp_path)), report=False)
    assert result.summary["failed"] == []


@pytest.mark.parametrize(("asked", "given"), [(None, 3), ("all", "all"), (7, 7)])
def test_of_many_clients_a_sample_is_evaluated_unless_the_user_says_how_many(monkeypatch, asked, given):
    monkeypatch.setattr("fedbench.jobs.resolve.MOST_EVALUATED", 3)
    assert resolve(small(evaluate={"clients": asked})).config.evaluate.clients == given


def test_few_clients_are_all_evaluated():
    assert resolve(small()).config.evaluate.clients is None


def test_data_of_ones_own_are_known_by_what_is_in_them(monkeypatch):
    module = ModuleType("brought")
    rows = np.arange(80.0).reshape(20, 4)
    module.make = lambda: ((rows, np.arange(20) % 2), (rows, np.arange(20) % 2))
    monkeypatch.setitem(sys.modules, "brought", module)
    asked = Config(data="brought:make", partition={"name": "iid", "clients": 2}, resources={"hosts": 0})
    first = resolve(asked).config
    assert first.data.content == resolve(asked).dataset.content
    assert resolve(first).config.key() == first.key()
    rows[3] += 1
    assert resolve(asked).config.data.content != first.data.content
    with pytest.raises(ConfigError, match=r"data brought:make: not the data of the requested run"):
        resolve(first)
    assert resolve(Config(resources={"hosts": 0})).config.data.content is None


def test_a_metric_of_ones_own_is_tried_before_round_1():
    asked = small("local", evaluate={"metrics": ["tests.tasks.test_further:fails"]})
    with pytest.raises(ConfigError, match=r"fails fails: ValueError: my metric \(test_further.py:\d+\)") as found:
        check_run(resolve(asked))
    assert not isinstance(found.value, RunError)


def test_one_class_is_nothing_to_tell_apart(monkeypatch):
    module = ModuleType("alike")
    rows = np.random.default_rng(0).normal(size=(20, 4))
    module.make = lambda: ((rows, ["cat"] * 20), (rows, ["cat"] * 20))
    monkeypatch.setitem(sys.modules, "alike", module)
    with pytest.raises(ConfigError, match=r"all samples are of one class \(cat\), two or more are needed$"):
        resolve(Config(data="alike:make", resources={"hosts": 0}))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            dict(method="pfedme", train__clip_norm=1.5),
            "train.clip_norm = 1.5: pfedme makes gradient steps of its own",
        ),
        (dict(method="apfl", train__accumulate=2), "train.accumulate = 2: apfl makes gradient steps of its own"),
        (
            dict(model="tests.jobs.test_resolve:Manual", train__clip_norm=1, train__engine="trainer"),
            "Manual optimises manually",
        ),
        (
            dict(model="tests.jobs.test_resolve:LooksAgain", train__accumulate=2),
            "LooksAgain evaluates a batch several times",
        ),
    ],
)
def test_gradients_that_cannot_be_clipped_or_accumulated_are_refused(asked, said):
    with pytest.raises(ConfigError) as error:
        check_run(resolve(small(**{"train__optimizer": "module" if "model" in asked else "sgd", **asked})))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


class LooksAgain(LightningModule):
    def __init__(self, classes=10):
        super().__init__()
        self.head = torch.nn.Linear(64, classes)

    def forward(self, x):
        return self.head(x.flatten(1))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


class Manual(LooksAgain):
    def __init__(self, classes=10):
        super().__init__(classes)
        self.automatic_optimization = False


NORMED, DEEP = "tests.runtime.networks:Normed", "tests.runtime.networks:Deep"


def several(method: str, *models: str, **more) -> Config:
    return small(method, model=list(models), train__optimizer="sgd", **more)


@pytest.mark.parametrize("method", ["fedavg", "knn-per", "fedfomo", "fedper"])
def test_a_method_that_exchanges_whole_models_refuses_several(method):
    with pytest.raises(ConfigError, match=rf"^model = mlp,tests.*: with {method} all clients have one model.* local,"):
        resolve(several(method, "mlp", DEEP))


def test_one_model_given_twice_is_no_reason_to_refuse():
    assert resolve(several("fedavg", DEEP, DEEP)).config.model.names == [DEEP, DEEP]


@pytest.mark.parametrize(
    ("method", "own", "other"),
    [("lg-fedavg", r"\[10, 12\], \[10\]", r"\[10, 200\], \[10\]"), ("fedproto", r"\[12\]", r"\[200\]")],
)
def test_what_is_exchanged_has_one_shape(method, own, other):
    with pytest.raises(
        ConfigError, match=f"{method} exchange must have the same shapes .* {own} in tests.* {other} in mlp"
    ):
        check_run(resolve(several(method, DEEP, "mlp")))
    check_run(resolve(several(method, DEEP, NORMED)))


def test_pre_training_exchanges_whole_models():
    with pytest.raises(ConfigError, match="must have the same shapes"):
        check_run(resolve(several("lg-fedavg", DEEP, NORMED, method__pretrain_rounds=1)))


def test_local_training_takes_any_models():
    assert takes_models(load("local"))
    check_run(resolve(several("local", DEEP, "mlp", "resnet8")))


def test_optimisers_of_models_are_not_mixed():
    with pytest.raises(ConfigError, match=r"Deep has an optimiser of its own.*--train.optimizer sgd"):
        resolve(small("local", model=["mlp", DEEP]))


def test_start_weights_are_those_of_one_model(tmp_path):
    model = {"name": ["mlp", DEEP], "weights": str(tmp_path / "w.pt")}
    with pytest.raises(ConfigError, match="clients have models of their own; leave it out"):
        resolve(small("local", model=model, train__optimizer="sgd"))
