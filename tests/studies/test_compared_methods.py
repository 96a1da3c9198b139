"""Methods by name, as variants, and what each is tuned over."""

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import Field

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.methods.fedper import FedPer
from fedbench.studies.compared_methods import ComparedMethod, method_names, require_distinct
from fedbench.studies.space import Space

OWN = "tests.runtime.accidents:Clumsy"


class Weighted(FedPer):
    """A method with an option that is a dict."""

    class Options(FedPer.Options):
        weights: dict[str, Any] = Field({}, description="weights by name")


@pytest.mark.parametrize(
    ("text", "label", "method", "fixed"),
    [
        ("fedper", "fedper", "fedper", {}),
        ("fedcac:tau=0.3,beta=none", "fedcac tau=0.3,beta=none", "fedcac", {"method.tau": 0.3, "method.beta": "none"}),
        ("fedavg:train.epochs=1", "fedavg epochs=1", "fedavg", {"train.epochs": 1}),
        (OWN, OWN, OWN, {}),
        (f"{OWN}:mu=1", f"{OWN} mu=1", OWN, {"method.mu": 1}),
    ],
)
def test_names_and_variants(text, label, method, fixed):
    found = ComparedMethod.parse(text)
    assert (found.label, found.name, found.fixed) == (label, method, fixed)


@pytest.mark.parametrize(
    "text", ["fedcac:", "fedcac:tau", "fedcac:tau=", "fedcac:tau=0.3,beta", "fedcac:tau=0.3,tau=0.5", ":tau=0.3"]
)
def test_mistakes_are_one_line(text):
    with pytest.raises(ConfigError, match="methods: "):
        ComparedMethod.parse(text)


@pytest.mark.parametrize("key", ["partition.alpha", "data.val", "model.name", "participation.x"])
def test_a_variant_is_on_the_same_clients_as_all(key):
    with pytest.raises(ConfigError, match=f"fedavg:{key}=2: {key}: must be the same .* --over {key}=V1,V2$"):
        ComparedMethod.parse(f"fedavg:{key}=2")


def test_nobody_enters_twice():
    with pytest.raises(ConfigError, match="fedper is given twice"):
        require_distinct([ComparedMethod.parse("fedper"), ComparedMethod.parse("fedper")])
    require_distinct([ComparedMethod.parse("fedper"), ComparedMethod.parse("fedper:head_init=own")])


def test_everybody_is_asked_the_same_but_for_its_own():
    config = Config(method={"name": "fedcac", "tau": 0.2}, rounds=7, train={"momentum": 0.5})
    own = ComparedMethod.parse("fedcac").config(config, {"train.lr": 0.3})
    other = ComparedMethod.parse("fedprox:mu=0.5").config(config)
    assert (own.method.options["tau"], own.train.lr, own.rounds) == (0.2, 0.3, 7)
    assert (other.method.name, other.method.options, other.train.momentum) == ("fedprox", {"mu": 0.5}, 0.5)


def test_what_is_set_is_not_tuned():
    space = Space({"method.tau": [0.1, 0.5], "train.lr": [0.01, 0.1]})
    free = ComparedMethod.parse("fedcac").tuned_over(space, Config(), None)
    assert len(free.points) == 4
    held = ComparedMethod.parse("fedcac:tau=0.3").tuned_over(space, Config(train={"lr": 0.1}), None)
    assert (held.points, held.held) == (({},), ("method.tau", "train.lr"))
    assert len(ComparedMethod.parse("fedcac").tuned_over(space, Config(), 3).points) == 3


def test_values_that_the_user_lists_are_tried_even_where_the_configuration_sets_their_key():
    config = Config(method={"name": "fedcac", "tau": 0.2}, train={"lr": 0.1})  # as a preset does
    space = Space({"method.tau": [0.1, 0.5], "train.lr": [0.2]})
    found = ComparedMethod.parse("fedcac").tuned_over(replace(space, listed=("method.tau",)), config, 9)
    assert (found.points, found.held) == (({"method.tau": 0.1}, {"method.tau": 0.5}), ("train.lr",))
    assert [found.config(config, point).method.options["tau"] for point in found.points] == [0.1, 0.5]


def test_what_the_models_own_optimiser_does_not_read_is_not_tuned():
    space = Space({"train.lr": [0.1, 0.3], "train.momentum": [0, 0.9], "train.epochs": [1, 5]})
    own = Config(model="tests.runtime.networks:Awkward")
    found = ComparedMethod.parse("fedavg").tuned_over(space, own, None)
    assert [*found.untuned] == ["train.momentum"]
    assert found.space.values == {"train.lr_scale": [1.0, 3.0], "train.epochs": [1, 5]}  # its rates are scaled
    plain = ComparedMethod.parse("per-fedavg").tuned_over(space, own, None)
    assert (plain.untuned, len(plain.points)) == ({"train.momentum": "per-fedavg makes plain steps of its own"}, 4)
    assert len(ComparedMethod.parse("co-pfl").tuned_over(space, own, None).points) == 8  # takes Adam by default
    for config in (Config(), Config(model="tests.runtime.networks:Awkward", train={"optimizer": "sgd"})):
        assert not ComparedMethod.parse("fedavg").tuned_over(space, config, None).untuned


@pytest.mark.parametrize(
    ("train", "axes", "untuned"),
    [
        ({"optimizer": "adam"}, ["train.lr", "train.momentum"], {"train.momentum": "train.optimizer = adam has none"}),
        ({"steps": 5}, ["train.lr", "train.epochs"], {"train.epochs": "train.steps = 5 takes its place"}),
        ({"optimizer": "adam"}, ["train.optimizer", "train.momentum"], {}),
        ({"steps": 5}, ["train.steps", "train.epochs"], {}),
    ],
)
def test_what_has_no_effect_with_another_key_is_not_tuned_unless_that_key_is(train, axes, untuned):
    assert ComparedMethod.parse("fedavg").without_effect(axes, Config(train=train)) == untuned


def test_a_space_that_names_the_keys_of_a_setting_is_refused_for_every_compared_method():
    with pytest.raises(ConfigError, match=r"space: rounds: keys of method\.\*, train\.\* and arguments of"):
        ComparedMethod.parse("fedper").tuned_over(Space({"rounds": [1, 2]}), Config(), None)


def test_what_was_set_after_construction_counts():
    config = Config(method="fedprox")
    config.train.lr, config.method.mu = 0.3, 0.7
    for method, options in (("fedprox", {"mu": 0.7}), ("local", {})):
        found = ComparedMethod.parse(method).config(config)
        assert (found.train.lr, found.method.options) == (0.3, options)


def test_a_variant_with_the_same_aggregator_keeps_its_options():
    config = Config(aggregator={"name": "trimmed-mean", "share": 0.2})
    found = ComparedMethod.parse("fedavg:aggregator.name=trimmed-mean,train.lr=0.1").config(config)
    assert found.aggregator == config.aggregator


def test_a_variant_is_of_the_named_method():
    for text in ("fedprox:name=fedavg", "fedprox:method.name=fedavg"):
        with pytest.raises(ConfigError, match="the method's name comes first"):
            ComparedMethod.parse(text)


def test_an_option_that_is_a_dict_stays_as_it_is():
    config = Config(method={"name": "tests.studies.test_compared_methods:Weighted", "weights": {"a.b": 1, "c": {}}})
    found = ComparedMethod.parse(config.method.name).config(config)
    assert found.method.options == {"weights": {"a.b": 1, "c": {}}}


def test_it_runs_its_points_on_the_tuning_seeds_and_the_first_one_on_the_final_ones():
    points = ({"train.lr": 0.1}, {"train.lr": 0.2})
    own = ComparedMethod("local", "local", {"rounds": 9}, points, {"rounds": 3}, samples=3)
    found = [(asked.train.lr, asked.rounds, seed) for asked, seed in own.runs(Config(), [0, 1], [90])]
    assert found == [(0.1, 3, 90), (0.2, 3, 90), (0.1, 3, 90), (0.1, 9, 0), (0.1, 9, 1)]


def test_the_better_half_of_the_points_goes_on_after_each_tuning_seed():
    own = ComparedMethod("local", "local", points=tuple({"train.lr": lr} for lr in (0.1, 0.2, 0.3, 0.4, 0.5)))
    assert [own.tried_on(place) for place in range(4)] == [5, 3, 2, 2]
    assert [seed for _, seed in own.runs(Config(), [0], [90, 91, 92])] == [90] * 5 + [91] * 3 + [92] * 2 + [0]
    assert [replace(own, samples=5).tried_on(place) for place in range(3)] == [5, 5, 5]
    assert replace(own, points=own.points[:2]).tried_on(2) == 2


def test_without_a_choice_there_are_final_runs_alone_on_its_own_seeds_where_it_has_some():
    assert [seed for _, seed in ComparedMethod("local", "local").runs(Config(), [0, 1])] == [0, 1]
    assert [seed for _, seed in ComparedMethod("local", "local", seeds=(7,)).runs(Config(), [0, 1])] == [7]


def test_a_baseline_has_the_aggregator_that_is_asked_for_only_where_it_averages():
    config = Config(aggregator={"name": "trimmed-mean", "share": 0.2})
    assert ComparedMethod.baseline("fedavg-ft").config(config).aggregator == config.aggregator
    local = ComparedMethod.baseline("local")
    assert local.config(config).aggregator == Config().aggregator
    assert local.label == "local"


def test_an_aggregator_is_a_variant_and_takes_over_no_options_of_another():
    found = ComparedMethod.parse("fedavg:aggregator.name=krum,aggregator.byzantine=2")
    asked = found.config(Config(aggregator={"name": "trimmed-mean", "share": 0.2}))
    assert asked.aggregator.model_dump() == {"name": "krum", "byzantine": 2}


class Mine(FedPer):
    """A method of one's own."""


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("fedper", ["fedper"]),
        ("fedper, fedcac:tau=0.3,beta=5,ditto", ["fedper", "fedcac:tau=0.3,beta=5", "ditto"]),
        (FedPer, ["fedper"]),
        ([FedPer, Mine, "ditto"], ["fedper", f"{__name__}:Mine", "ditto"]),
        ((name for name in ("fedper",)), ["fedper"]),
        ([], []),
    ],
)
def test_methods_are_names_classes_or_one_of_them(given, names):
    assert method_names(given) == names


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (3, 'baselines: int is no method; a list of names and classes is expected, for example ["fedper", MyMethod]'),
        (None, "baselines: NoneType is no method"),
        ({"fedper": 1}, "baselines: dict is no method"),
        ([3], "baselines: int is no method; a name or a class is expected"),
        ([FedPer.__new__(FedPer)], "baselines: an instance of FedPer; pass the class FedPer itself"),
    ],
)
def test_what_is_no_method_is_refused(given, line):
    with pytest.raises(ConfigError, match=re.escape(line)):
        method_names(given, "baselines")


def test_a_class_that_is_no_method_is_refused():
    (name,) = method_names([Space])
    with pytest.raises(ConfigError, match=r"Space' is not a subclass of fedbench.methods.base.Method"):
        ComparedMethod.parse(name)
