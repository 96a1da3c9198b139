"""The configuration refuses what is wrong in one line, and survives being written and read."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from ray import cloudpickle

from fedbench.cli.flags import merge_layers
from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.config.keys import nest
from fedbench.config.schema import YOUNGER
from fedbench.errors import ConfigError
from fedbench.import_string import import_string
from fedbench.methods.fedper import FedPer
from tests.runtime.networks import Awkward


def message(**values):
    with pytest.raises(ConfigError) as caught:
        Config(**values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_stands_for_its_section():
    config = Config(method="fedcac", data="cifar10", partition="iid", model="resnet18")
    assert (config.method.name, config.data.name, config.partition.name, config.model.name) == (
        "fedcac",
        "cifar10",
        "iid",
        "resnet18",
    )


def test_every_section_with_a_name_takes_it_as_text():
    config = Config(attack="alie", compression="topk")
    assert (config.attack.name, config.compression.name) == ("alie", "topk")
    assert "must be a mapping of the keys size" in message(public="classes")


def test_what_is_given_is_what_was_set_at_construction_or_later():
    config = Config(method="fedprox", rounds=3)
    assert config.given() == {"method": {"name": "fedprox"}, "rounds": 3}
    config.train.lr, config.method.mu, config.seeds = 0.3, 0.7, [1]
    later = {"method": {"name": "fedprox", "mu": 0.7}, "rounds": 3, "train": {"lr": 0.3}, "seeds": [1]}
    assert config.given() == later
    assert Config(**config.given()).key() == config.key()


def test_open_sections_keep_further_keys():
    assert Config(method={"name": "fedcac", "tau": 0.3}).method.options == {"tau": 0.3}


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"tran": {"lr": 1}}, ["unknown key tran", "train"]),
        ({"train": {"lrr": 1}}, ["unknown key train.lrr", "lr"]),
        ({"train": {"lr": -1}}, ["train.lr = -1", "a number > 0"]),
        ({"train": {"lr": "fast"}}, ["train.lr = 'fast'", "a number > 0"]),
        ({"train": {"lr": float("nan")}}, ["train.lr = nan"]),
        ({"train": {"batch_size": "ful"}}, ["train.batch_size = 'ful'", "a whole number >= 1 or full"]),
        ({"train": {"optimizer": "sdg"}}, ["sgd, adam or adamw", "did you mean sgd?"]),
        ({"train": 5}, ["train = 5: must be a mapping of the keys optimizer, lr"]),
        (
            {"model": object()},
            ["model = an object of type object: must be a name, a class or a function, or a mapping"],
        ),
        ({"rounds": "x" * 300}, ["rounds = 'xxx", "xxx...: must be a whole number in [1, 10000000]"]),
        ({"method": 5}, ["method = 5: must be a name, a class or a function, or a mapping"]),
        ({"hosts": 0}, ["unknown key hosts: did you mean resources.hosts?"]),
        ({"train": {"gpus-per-host": 0}}, ["unknown key train.gpus-per-host: did you mean resources.gpus_per_host?"]),
        ({"clients": 3}, ["did you mean partition.clients or evaluate.clients?"]),
        ({"data": {"val": 1}}, ["data.val = 1", "a number in [0, 1)"]),
        ({"partition": {"clients": 1.5}}, ["partition.clients = 1.5", "whole number in [1, 10000000]"]),
        ({"resources": {"hosts": -1}}, ["resources.hosts = -1", "whole number >= 0 or auto"]),
        ({"resources": {"gpus_per_trial": 0}}, ["resources.gpus_per_trial = 0", "number > 0 or auto"]),
        ({"resources": {"gpus_per_trial": 0.4}}, ["resources.gpus_per_trial = 0.4", "1/k, such as 0.5, 0.333 or 0.25"]),
        ({"resources": {"gpus_per_trial": 1.5}}, ["resources.gpus_per_trial = 1.5", "or a whole number"]),
        ({"seeds": []}, ["seeds = []", "at least one"]),
        ({"seeds": [1, 1]}, ["seeds = [1, 1]", "each seed once"]),
        ({"seeds": ["a"]}, ["seeds = 'a'", "list of whole numbers"]),
        ({"seeds": [10**22]}, ["whole numbers in [0, 2147483647]"]),
        ({"seeds": [-1]}, ["whole numbers in [0, 2147483647]"]),
        ({"partition": {"seed": 2**31}}, ["partition.seed = 2147483648", "in [0, 2147483647] or none"]),
        ({"loggers": ["csv", "csv"]}, ["loggers = ['csv', 'csv']", "each logger once"]),
        ({"out": "a\0b"}, ["null byte"]),
        ({"participation": 2.5}, ["participation = 2.5", "share in (0, 1]"]),
        ({"method": {"name": 1.5, "tau": 1}, "rounds": 0}, ["rounds = 0", "in [1, 10000000]"]),
    ],
)
def test_mistakes_are_named_in_one_line_with_what_is_legal(values, parts):
    text = message(**values)
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    "values",
    [
        {"rounds": True},
        {"rounds": 1.0},
        {"rounds": "1"},
        {"seeds": [True]},
        {"seeds": [0, 1.0]},
        {"seeds": ["1"]},
        {"train": {"batch_size": True}},
        {"train": {"lr": True}},
        {"train": {"lr": "0.1"}},
        {"resources": {"hosts": 0.0}},
    ],
)
def test_numbers_are_taken_as_they_are_written_only(values):
    assert re.search(r"must be a (list of )?(whole )?number", message(**values))


def test_numbers_of_numpy_and_whole_rates_are_numbers():
    config = Config(rounds=np.int64(3), seeds=range(2), train={"lr": 1, "batch_size": np.int64(8)})
    assert (config.rounds, config.seeds, config.train.lr, config.train.batch_size) == (3, [0, 1], 1.0, 8)


@pytest.mark.parametrize("name", ["", ".", "..", "../../esc", "a/b", "/tmp/x", "a\nb", "a\0b"])
def test_a_name_is_that_of_one_folder(name):
    assert f"name = {name!r}: " in message(name=name)
    assert Config(name="lr 0.1, Früh").name == "lr 0.1, Früh"


def test_none_is_no_value_where_a_key_may_have_none():
    assert Config(partition={"images": "none"}, name="none").partition.images is None
    assert "rounds = 'none'" in message(rounds="none")


def test_numbers_are_taken_as_names():
    assert Config(name=2026).name == "2026"


def test_written_and_read_it_is_the_same(tmp_path):
    config = Config(method={"name": "fedcac", "tau": 1e-5}, name="1e-3", wandb={"tags": ["007", "yes"]}, seeds=[3, 1])
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    again = Config(**load_yaml(path))
    assert again.decisive() == config.decisive()
    assert again.wandb.tags == ["007", "yes"]


def test_key_depends_on_what_decides_the_numbers_only():
    config = Config(method="fedcac")
    assert config.key() == Config(method="fedcac", seeds=[5], out="x", loggers=["csv"], resources={"hosts": 2}).key()
    assert config.key() != Config(method="fedcac", train={"lr": 0.02}).key()


def test_the_configuration_needs_neither_torch_nor_ray():
    code = "import sys, fedbench.config; sys.exit(any(name in sys.modules for name in ('torch', 'ray', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def rule(vectors, weights, current):
    return vectors.mean(0)


def test_classes_and_functions_stand_for_their_names():
    class Inner:
        pass

    config = Config(method=FedPer, model={"name": Path, "hidden": 3}, aggregator=rule, data=Inner)
    assert (config.method.name, config.model.name) == ("fedper", f"{Path.__module__}:Path")
    assert config.model.options == {"hidden": 3}
    assert config.aggregator.name == "tests.config.test_schema:rule"
    where = r"test_classes_and_functions_stand_for_their_names\.<locals>\.Inner@[0-9a-f]{8}"
    assert re.fullmatch(rf"tests\.config\.test_schema:{where}", config.data.name)
    assert import_string(config.data.name, "data") is Inner
    assert "must be a name, a class or a function, or a mapping" in message(method=3)
    evaluate = Config(evaluate={"metric": load_yaml, "metrics": [load_yaml]}).evaluate
    assert [evaluate.metric] == evaluate.metrics == ["fedbench.config.files:load_yaml"]
    assert Config(evaluate={"metrics": load_yaml}).evaluate.metrics == ["fedbench.config.files:load_yaml"]
    for own in ({"metric": partial(rule, 1)}, {"metrics": [partial(rule, 1)]}):
        assert "must be a name, a function or a class; write a function that calls this object" in message(evaluate=own)


def test_what_only_this_process_knows_goes_where_the_configuration_goes(monkeypatch):
    main = ModuleType("__main__")
    exec("def made(train):\n    return [(0.5, 1)]", main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    sent = cloudpickle.dumps(Config(data=main.made))
    code = "import pickle, sys; from fedbench.import_string import import_string as found; "
    code += "config = pickle.load(sys.stdin.buffer); print(found(config.data.name, 'data')(True))"
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
    assert done.stdout == b"[(0.5, 1)]\n", done.stderr


def test_an_instance_of_a_method_is_refused():
    own = FedPer.__new__(FedPer)
    assert message(method=own) == "method is an instance of FedPer; pass the class FedPer itself"
    assert message(method={"name": own}) == message(method=own)


def test_a_mapping_of_keys_is_a_configuration():
    assert Config.of({"method": "fedper", "rounds": 3}) == Config(method="fedper", rounds=3)
    for mistake in ("fedper", Config, None, ["fedper"], {1: 2}):
        with pytest.raises(ConfigError, match="expected a Config or a dict of its keys first, not "):
            Config.of(mistake)
    with pytest.raises(ConfigError, match=r"not str 'fedper'; a method is a key of it, Config\(method=...\)"):
        Config.of("fedper")


def test_a_value_may_be_set_later_within_its_range():
    config = Config()
    config.rounds = 3
    assert config.rounds == 3
    with pytest.raises(ConfigError, match=r"rounds = -1: must be .*1"):
        config.rounds = -1
    with pytest.raises(ConfigError, match="unknown key momentun; did you mean momentum"):
        config.train.momentun = 0


def test_options_added_later_leave_the_names_of_earlier_results():
    assert Config(method="fedcac").key() == "c172215ab1df"
    assert Config(method="fedcac", train={"clip_norm": 1.0}).key() != "c172215ab1df"
    assert "level" not in Config(privacy={"clip": 1.0}).decisive()["privacy"]
    plain = Config().model_dump()
    assert all((plain[section] if section else plain)[key] == default for section, key, default in YOUNGER)


@pytest.mark.parametrize(
    ("partition", "key"),
    [
        ({"name": "dirichlet", "alpha": 0.1, "test": "drawn", "test_size": 20}, "4bf89eb6fceb"),
        ({"name": "practical", "total": 900, "min_images": 5}, "b8c8e73ab241"),
        ({"name": "dirichlet-fixed", "train_size": 60}, "c422dc3c1f5f"),
        ({"name": "shards", "classes": 3, "deal": "shuffled", "images": 10, "reuse": True}, "f35a5e01d7f3"),
        ({"name": "pathological", "train_size": 40, "clients": 4}, "de813ee54013"),
        ({"name": "iid", "train_size": 30}, "165e3d346b55"),
        ({"name": "iid", "alpha": 0.3}, "94786018f930"),
        ({"name": "counts", "counts": [[9] * 10] * 10}, "e8d7f247f14e"),
        ({"name": "natural", "min_samples": 3}, "a9b3684444b1"),
        ({"name": "domain", "train_size": 20}, "2652bc8737eb"),
        ({"name": "domain-shards", "classes": 3}, "34602a55f8c8"),
        ({"name": "corruption", "classes": 3}, "d1b06957a1b9"),
        ({"name": "file", "path": "/tmp/clients.json"}, "0e6ecc693d6f"),
    ],
)
def test_results_by_every_scheme_keep_their_names(partition, key):
    assert Config(partition=partition).key() == key


def test_results_of_the_preset_keep_their_names():
    assert Config(**nest(merge_layers("fedcac-cifar10", None, {}))).key() == "8ea245185177"


def test_several_models_are_one_name_with_commas():
    forms = (["mlp", "resnet8"], ("mlp", "resnet8"), "mlp, resnet8", {"name": ["mlp", "resnet8"]})
    configs = [Config(model=form) for form in forms]
    assert {config.key() for config in configs} == {configs[0].key()}
    assert configs[0].model.names == ["mlp", "resnet8"]
    assert configs[0].model.alone("mlp").names == Config(model="mlp").model.names
    assert Config(model=["mlp"]).key() == Config(model="mlp").key()
    assert Config(model=[Awkward, "mlp"]).model.names == ["tests.runtime.networks:Awkward", "mlp"]


@pytest.mark.parametrize("models", [[], [3], ["mlp", ""], [{"name": "mlp"}]], ids=str)
def test_a_list_of_models_holds_models(models):
    with pytest.raises(ConfigError, match=r"model:.*list"):
        Config(model=models)
