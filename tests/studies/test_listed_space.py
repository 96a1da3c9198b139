"""Values that a user lists for all methods of a study or for one."""

import re

import pytest

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning, Tuning
from fedbench.errors import ConfigError
from fedbench.methods.fedavg import FedAvg
from fedbench.studies.compare import plan_comparisons
from fedbench.studies.grid import plan_grid

OWN = {"name": "tests.runtime.networks:Awkward", "head": "classifier"}


class Wide(FedAvg):
    """A method whose space has an argument of the model."""

    SPACE = {"model.hidden": [10, 20], "train.lr": [0.01, 0.1]}  # noqa: RUF012


def axes(names, space, tune=None, **config):
    (study,), _, _ = plan_comparisons(Config(**config), names, ComparisonTuning(tune=tune), None, space)
    return {method.label: {key: [*values] for key, values in method.space.values.items()} for method in study.compared}


def test_values_are_those_of_all_methods():
    found = axes(["fedper", "fedprox"], {"train.lr": [0.1, 0.3]})
    assert len(found) == 5
    assert all(own == {"train.lr": [0.1, 0.3]} for own in found.values())


def test_values_for_one_method_are_its_whole_space_and_others_keep_theirs():
    found = axes(["fedper", "fedprox"], {"fedper:train.lr": [0.1, 0.3]})
    assert found["fedper"] == {"train.lr": [0.1, 0.3]}
    assert [*found["fedprox"]] == ["method.mu", "train.lr"]
    found = axes(["fedper", "fedprox"], {"train.lr": [0.1, 0.3], "fedper:train.lr": [0.01, 0.03]})
    assert (found["fedper"], found["local"]) == ({"train.lr": [0.01, 0.03]}, {"train.lr": [0.1, 0.3]})


def test_a_variant_is_named_by_its_label_or_with_all_others_by_the_method():
    names = ["fedper", "fedper:head_init=own"]
    for whose, takers in (("fedper head_init=own", 1), ("fedper", 2)):
        found = axes(names, {f"{whose}:train.lr": [0.1, 0.3]})
        assert sum(own == {"train.lr": [0.1, 0.3]} for own in found.values()) == takers


def test_a_method_without_a_listed_option_keeps_the_rest_of_its_space_and_as_many_points():
    space = {"train.lr": [0.1, 0.3], "method.mu": [0.1, 1.0]}
    (study,), _, _ = plan_comparisons(Config(), ["fedprox"], ComparisonTuning(), None, space)
    by_label = {method.label: method for method in study.compared}
    assert by_label["fedprox"].space.values == {"train.lr": [0.1, 0.3], "method.mu": [0.1, 1.0]}
    assert by_label["local"].space.values == {"train.lr": [0.1, 0.3], "train.momentum": [0.0, 0.9]}
    assert {len(method.points) for method in study.compared} == {4}


def test_a_grid_and_a_comparison_mean_the_same_by_it():
    space = {"train.lr": [0.1, 0.3], "local:train.lr": [0.01, 0.03, 0.1]}
    grid = plan_grid(Config(method="fedper"), Tuning(), space)
    (comparison,), _, _ = plan_comparisons(Config(), ["fedper"], ComparisonTuning(), None, space)
    assert [method.space.values for method in grid.compared] == [method.space.values for method in comparison.compared]


def test_arguments_of_the_model_are_tuned_alike_for_all_methods():
    found = axes(["fedper"], {"model.hidden": [10, 20]}, model="mlp")
    assert all(own == {"model.hidden": [10, 20]} for own in found.values())
    found = axes([f"{__name__}:Wide", "fedper"], None, model="mlp", tune=2)
    assert all(own["model.hidden"] == [10, 20] for own in found.values())
    assert all(
        "model.hidden" not in own
        for own in axes([f"{__name__}:Wide"], None, model={"name": "mlp", "hidden": 5}).values()
    )


@pytest.mark.parametrize(
    ("space", "config", "line"),
    [
        (
            {"fedpr:train.lr": [0.1, 0.3]},
            {},
            "space: fedpr:train.lr: fedpr is none of the methods of this study: fedper, ",
        ),
        ({"method.nope": [1, 2]}, {}, "unknown key method.nope: "),
        ({"mu": [0.1, 1.0]}, {}, "space: mu: names no section; write method.mu"),
        ({"fedprox:mu": [0.1, 1.0]}, {}, "space: mu: names no section; write method.mu"),
        ({"model.nope": [1, 2]}, {"model": "mlp"}, "space: unknown key model.nope: mlp takes no such argument; "),
        ({"model.classes": [1, 2]}, {"model": "mlp"}, "space: model.classes: decided by the data (digits)"),
        ({"fedper:model.hidden": [1, 2]}, {"model": "mlp"}, "space: fedper:model.hidden: the model is tuned alike"),
        ({"train.momentum": [0.1, 0.5]}, {"train": {"optimizer": "adam"}}, "space: train.momentum: without effect, "),
        ({"train.lr": [0.1, 0.5]}, {"model": OWN}, "space: train.lr: without effect, leave it out: the model's"),
        ("papers", {}, "space = papers: must be paper, or values by key"),
        ({}, {}, "space = {}: names no key"),
    ],
)
def test_what_cannot_be_tried_is_one_line(space, config, line):
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}") as caught:
        axes(["fedper", "fedprox"], space, **config)
    assert "\n" not in str(caught.value)


def test_methods_that_list_different_values_of_a_model_are_refused():
    class Narrow(FedAvg):
        SPACE = {"model.hidden": [5], "train.lr": [0.01, 0.1]}  # noqa: RUF012

    from fedbench.user_code import name_of

    with pytest.raises(
        ConfigError, match=r"^space: model.hidden: .* lists 10, 20 and .* 5, and the model is tuned alike"
    ):
        axes([f"{__name__}:Wide", name_of(Narrow)], None, model="mlp")
