"""Rates of a space for another optimiser."""

from dataclasses import replace

import pytest
from ray import tune

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning
from fedbench.methods.fedavg import FedAvg
from fedbench.studies.compare import plan_comparisons
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.rates import for_optimizer, optimizer_of, scale_values
from fedbench.studies.space import Space

OWN = {"name": "tests.runtime.networks:Awkward", "head": "classifier"}
LADDER = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0]


class Silent(FedAvg):
    """A method whose space does not say for which optimiser it is."""

    SPACE = {"train.lr": [0.001, 0.003, 0.01]}  # noqa: RUF012


class ForAdam(Silent):
    """A method with a space for Adam."""

    SPACE = Silent.SPACE
    RATES_FOR = "adam"


def tuned(method, **config) -> ComparedMethod:
    asked = ComparedMethod.parse(method if isinstance(method, str) else f"{__name__}:{method.__name__}")
    return asked.tuned_over(Space.of(asked.name), Config(**config), None)


@pytest.mark.parametrize(
    ("method", "config", "axis"),
    [
        ("fedper", {}, ("train.lr", LADDER)),
        ("fedper", {"train": {"optimizer": "adamw"}}, ("train.lr", [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03])),
        ("fedper", {"train": {"optimizer": "adam"}}, ("train.lr", [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03])),
        ("fedper", {"model": OWN}, ("train.lr_scale", [0.1, 0.3, 1.0, 3.0, 10.0, 30.0])),
        ("fedper", {"model": OWN, "train": {"optimizer": "sgd"}}, ("train.lr", LADDER)),
        ("co-pfl", {"train": {"optimizer": "adamw"}}, ("train.lr", [0.0001, 0.0003, 0.001])),  # its own Adam
        ("per-fedavg", {"model": OWN}, ("train.lr", [0.01, 0.03, 0.1])),  # its own steps of sgd
        ("fedpac", {"train": {"optimizer": "adam"}}, ("method.head_lr", [0.0003, 0.003])),
        ("fedas", {"train": {"optimizer": "adam"}}, ("method.align_lr", [0.01, 0.1])),
        (Silent, {"train": {"optimizer": "adam"}}, ("train.lr", [0.001, 0.003, 0.01])),
        (Silent, {"model": OWN}, ("train.lr_scale", [0.3, 1.0, 3.0])),
        (ForAdam, {}, ("train.lr", [0.03, 0.09, 0.3])),
        (ForAdam, {"train": {"optimizer": "adamw"}}, ("train.lr", [0.001, 0.003, 0.01])),
    ],
)
def test_a_space_has_rates_for_the_optimiser_of_the_run_and_as_many_points(method, config, axis):
    found = tuned(method, **config)
    assert found.space.values[axis[0]] == axis[1]
    assert {len(point) for point in found.points} == {len(found.space.axes)}
    assert len(found.points) == len(tuned(method).points) or "momentum" in str(found.untuned)


def test_rates_that_the_user_lists_are_tried_as_they_are():
    asked = ComparedMethod.parse("fedper")
    space = Space.given_for("fedper", {"train.lr": [0.1, 0.3]})
    found = asked.tuned_over(replace(space, listed=("train.lr",)), Config(train={"optimizer": "adam"}), None)
    assert found.space.values == {"train.lr": [0.1, 0.3]}


def test_a_space_for_an_unknown_optimiser_is_a_doubt_and_a_turned_one_is_said():
    assert (
        "do not say for which optimiser they are (RATES_FOR" in tuned(Silent, train={"optimizer": "adam"}).rates.doubt
    )
    assert tuned(Silent).rates.doubt == tuned("fedper", train={"optimizer": "adam"}).rates.doubt == ""
    said = tuned(Silent, model=OWN).rates
    assert said.turned == "train.lr_scale 0.3/1/3 in place of train.lr 0.001/0.003/0.01"
    head = tuned("fedpac", model=OWN).rates.doubt
    assert head == "the values of method.head_lr are for sgd, and the model's own optimiser makes the steps"


def test_the_doubt_is_in_the_plan_before_the_study_starts():
    names = [f"{__name__}:Silent"]
    (study,), _, _ = plan_comparisons(Config(train={"optimizer": "adam"}), names, ComparisonTuning(tune=2))
    (line,) = study.plan.tuning_doubts
    assert line.startswith(f"{__name__}:Silent: the values of train.lr do not say for which optimiser they are")
    (study,), _, _ = plan_comparisons(Config(), ["fedper"], ComparisonTuning(tune=0))
    assert study.plan.tuning_doubts == [
        "one learning rate each: for any method no other one is tried, so that a better one may be missed"
    ]
    (study,), _, _ = plan_comparisons(Config(), ["fedper"], ComparisonTuning(tune=2))
    assert study.plan.tuning_doubts == []


def test_a_distribution_keeps_its_kind():
    space = Space({"train.lr": tune.loguniform(0.003, 0.3)}, optimizer="sgd")
    found, _ = for_optimizer(space, "fedavg", "adam")
    drawn = found.values["train.lr"]
    assert (drawn.lower, drawn.upper) == (pytest.approx(1e-4), pytest.approx(1e-2))
    assert space.values["train.lr"].lower == 0.003


def test_values_stay_different_and_what_is_no_number_stays():
    assert scale_values([0.01, 0.011, None], 1 / 30) == [0.0003, 0.0004, None]


def test_the_optimiser_is_that_of_the_steps():
    assert optimizer_of("fedavg", Config()) == "sgd"
    assert optimizer_of("fedavg", Config(model=OWN)) == "module"
    assert optimizer_of("pfedme", Config(model=OWN)) == optimizer_of("co-pfl", Config()) == ""
