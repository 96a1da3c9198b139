"""Keys with values or distributions, and which keys are legal where."""

import re

import numpy as np
import pytest
from ray import tune

from fedbench.errors import ConfigError
from fedbench.studies.axis import OF_VARIANT, SEARCHED, VARIED, Axis, Role, check_values, distribution
from fedbench.studies.space import Space


def test_what_tune_can_list_is_a_list():
    axes = {"train.lr": tune.choice([0.1, 0.2]), "train.epochs": tune.grid_search([1, 5])}
    assert {key: Axis(key, values).values for key, values in axes.items()} == {
        "train.lr": [0.1, 0.2],
        "train.epochs": [1, 5],
    }


def test_values_are_pythons_numbers_in_place_of_those_of_numpy():
    axes = Space(
        {"train.lr": [np.float64(0.1), np.float32(0.5)], "train.shuffle": [np.True_], "b": np.arange(2)}
    ).values
    assert axes == {"train.lr": [0.1, 0.5], "train.shuffle": [True], "b": [0, 1]}
    assert {type(value) for values in axes.values() for value in values} == {float, bool, int}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loguniform(1e-4, 1e-1)", "LogUniform(0.0001, 0.1)"),
        ("tune.uniform(0, 1)", "Uniform(0, 1)"),
        ("quniform(0, 1, 0.25)", "Uniform(0, 1) step 0.25"),
        ("randint(1, 6)", "Uniform(1, 6)"),
    ],
)
def test_distributions_are_written_as_tune_has_them(text, words):
    assert Axis("a", distribution(text)).text() == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("uniform(1,2", "it does not end with a bracket"),
        ("loguniform(1e-1, 1e-4)", "the first bound must be below the second"),
        ("uniform(1, 1)", "the first bound must be below the second"),
        ("randint(0.5, 1.5)", "whole numbers are expected"),
        ("quniform(0.1, 0.2, 0)", "the step must be > 0"),
    ],
)
def test_a_distribution_that_draws_nothing_is_refused(text, said):
    with pytest.raises(ConfigError, match=re.escape(f"space: {text}: ") + f".*{said}; as Ray Tune has it"):
        distribution(text)


def test_a_choice_is_a_list_and_other_words_are_no_distribution():
    assert distribution("choice(1, none, a)") == [1, "none", "a"]
    assert distribution("0.1,0.5") is distribution("0.1 (or so)") is None
    with pytest.raises(ConfigError, match=r"unknown distribution 'unifrom': did you mean uniform"):
        distribution("unifrom(0, 1)")
    with pytest.raises(ConfigError, match=r"space: loguniform\(-1, 1\): .*for example loguniform"):
        distribution("loguniform(-1, 1)")


@pytest.mark.parametrize("axes", [{"train.lr": 0.1}, {"train.lr": "0.1,0.2"}, {1: [1, 2]}])
def test_a_key_without_a_list_of_values_is_refused(axes):
    with pytest.raises(ConfigError, match=r"^space: .*: a key with a list of values or a distribution is expected, "):
        check_values(axes)


def test_values_are_lists_arrays_and_distributions():
    axes = {"train.lr": np.array([0.1, 0.2]), "train.epochs": (1, 2), "method.mu": tune.uniform(0, 1)}
    check_values(axes)
    assert Space(axes).values["train.lr"] == [0.1, 0.2]
    assert type(Space({"train.epochs": np.array([1, 2])}).values["train.epochs"][0]) is int  # goes into JSON


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("train.lr=0.1,0.3", "train.lr", [0.1, 0.3]),
        ("train.lr=[1e-3,0.1]", "train.lr", [0.001, 0.1]),
        ("fedper head_init=own:train.lr=0.01,0.03", "fedper head_init=own:train.lr", [0.01, 0.03]),
        ("my.module:Mine:method.mu=1,2", "my.module:Mine:method.mu", [1, 2]),
        ("data=csv:a.csv,folder:b", "data", ["csv:a.csv", "folder:b"]),
        ("mu=1", "mu", [1]),
    ],
)
def test_a_key_comes_before_its_values(text, key, values):
    assert Axis.parse(text, "over") == Axis(key, values)


def test_distributions_draw_numbers_with_few_digits_within_their_bounds():
    axis, stream = Axis.parse("train.lr=loguniform(1e-4, 1e-1)", "space"), np.random.RandomState(0)
    drawn = [axis.draw(stream) for _ in range(50)]
    assert all(1e-4 <= number <= 1e-1 and number == float(f"{number:.4g}") for number in drawn)
    assert len(set(drawn)) > 40
    assert axis.domain is axis.values
    listed = Axis("train.lr", [1 / 3, 2 / 3])
    assert {listed.draw(stream) for _ in range(20)} == {1 / 3, 2 / 3}
    assert listed.domain.categories == [1 / 3, 2 / 3]
    assert listed.text("/") == "0.333333/0.666667"


@pytest.mark.parametrize(
    ("role", "legal", "illegal"),
    [
        (SEARCHED, ("method.tau", "train.lr", "model.hidden"), ("rounds", "train", "model.name", "method.name")),
        (VARIED, ("rounds", "data", "data.val", "method.tau"), ("seeds", "resources.hosts", "method", "method.name")),
        (OF_VARIANT, ("method.tau", "train.lr", "aggregator.name"), ("rounds", "data.val", "model.hidden")),
    ],
    ids=lambda role: role.flag if isinstance(role, Role) else "",
)
def test_every_role_has_its_keys(role, legal, illegal):
    for key in legal:
        role.check(key)
    for key in illegal:
        with pytest.raises(ConfigError, match=f"^{role.flag}: {key}: "):
            role.check(key)
