"""What a method is tuned over."""

from dataclasses import replace

import numpy as np
import pytest
from ray import tune

from fedbench.errors import ConfigError
from fedbench.studies.space import Space

AXES = {"method.tau": [0.1, 0.5, 0.9], "train.lr": [0.01, 0.1]}


def test_points_are_all_combinations_that_make_sense():
    space = Space(AXES, lambda values: values["method.tau"] < 0.9 or values["train.lr"] < 0.1)
    assert len(space.points()) == 5
    assert {"method.tau": 0.9, "train.lr": 0.1} not in space.points()


def test_some_points_are_always_the_same_ones_in_their_order():
    few = Space(AXES).points(3)
    assert few == Space(AXES).points(3)
    assert len(few) == 3
    assert [point for point in Space(AXES).points() if point in few] == few
    assert Space(AXES).points(10) == Space(AXES).points()


WIDE = {"method.tau": [0.1, 0.3, 0.5, 0.7], "method.mode": ["a", "b"], "train.lr": [0.001, 0.01, 0.1, 1.0]}


def test_few_points_cover_the_space_and_the_default_setting_comes_first():
    space = Space(WIDE, given={"method.tau": 0.3, "method.mode": "b", "train.lr": 0.1})
    assert space.points(1) == [{"method.tau": 0.3, "method.mode": "b", "train.lr": 0.1}]
    for key, values in WIDE.items():
        for count in (4, 8):
            taken = [point[key] for point in space.points(count)]
            assert [taken.count(value) for value in values] == [count // len(values)] * len(values), (key, count)


def test_more_points_include_the_same_ones():
    space = Space(WIDE)
    for count in range(1, 32):
        fewer, more = space.points(count), space.points(count + 1)
        assert len(fewer) == count
        assert all(point in more for point in fewer)


def test_points_of_numbers_lie_far_apart():
    """Both keys would otherwise grow together: low with low, high with high."""
    space = Space({"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]})
    points = np.array([[point["a"], point["b"]] for point in space.points(5)])
    assert abs(np.corrcoef(points.T)[0, 1]) < 0.9


def test_a_key_that_is_set_is_no_axis():
    assert Space(AXES).without(["train.lr"]).points() == [{"method.tau": tau} for tau in AXES["method.tau"]]


def test_a_condition_sees_what_is_set():
    below = lambda values: values["method.tau"] < values["train.lr"]  # noqa: E731
    space = Space(AXES, below, given={"train.lr": 0.6}).without(["train.lr"])
    assert space.points() == [{"method.tau": 0.1}, {"method.tau": 0.5}]
    assert len(space.draws(9)) == 2


def test_distributions_have_no_grid():
    space = Space({"method.tau": [0.1], "train.lr": tune.loguniform(1e-3, 1.0)})
    with pytest.raises(ConfigError, match=r"space: train\.lr is a distribution, which a grid cannot list; list"):
        space.points()
    assert space.as_text() == {"method.tau": [0.1], "train.lr": "LogUniform(0.001, 1.0)"}


def test_the_first_of_more_draws_are_the_same_ones():
    space = Space({"train.lr": tune.loguniform(1e-3, 1.0), "train.epochs": tune.randint(1, 6), **AXES})
    found = space.draws(8)
    assert space.draws(20)[:8] == found
    assert all(1e-3 <= point["train.lr"] <= 1.0 for point in Space({"train.lr": tune.uniform(1e-3, 1.0)}).draws(50))
    assert all(point["train.lr"] in AXES["train.lr"] for point in found)


def test_draws_are_different_and_meet_the_condition_and_end_with_the_space():
    space = Space(AXES, lambda values: values["method.tau"] < 0.9)
    found = space.draws(9, takes=lambda point: point["train.lr"] < 0.1)
    assert sorted(point["method.tau"] for point in found) == [0.1, 0.5]


def test_a_constraint_that_fails_is_named_with_its_line():
    def fails(values):
        raise ValueError("boom")

    with pytest.raises(ConfigError, match=r"CONSTRAINT .* fails at tau=0.1,lr=0.01: ValueError: boom \(test_space.py:"):
        Space(AXES, fails).points()


def test_the_papers_grid_where_there_is_one():
    assert Space.paper("co-pfl").values["method.personalization_rate"] == [0.01, 0.05, 0.15, 0.25, 0.40, 0.50]
    assert Space.paper("perfed-ckt") is None


def test_the_condition_of_a_method_holds_for_values_of_a_user_too():
    rate, budget = "method.personalization_rate", "method.personalization_budget"
    found = Space.given_for("co-pfl", {rate: [0.1, 0.5], budget: [0.3]}).points()
    assert found == [{rate: 0.1, budget: 0.3}]
    assert Space.given_for("tests.runtime.accidents:Clumsy", {rate: [0.1]}).points() == [{rate: 0.1}]


def test_a_class_of_ones_own_has_the_space_of_the_method_that_it_derives_from():
    for method, lender in (("tests.runtime.accidents:Clumsy", "fedper"), ("tests.studies.test_cost:Twice", "fedavg")):
        assert Space.of(method) == replace(Space.of(lender), lent=lender)
        assert Space.paper(method) is None
    assert Space.of("fedper").lent == ""


def test_a_method_without_a_space_says_what_to_do(monkeypatch):
    monkeypatch.setattr("fedbench.tune_space.module_of", lambda name: None)
    with pytest.raises(ConfigError, match=r"write tune_spaces/clumsy.py with SPACE = .* fedbench compare --tune 0$"):
        Space.of("tests.runtime.accidents:Clumsy")


@pytest.mark.parametrize(
    "key",
    [
        "seeds",
        "rounds",
        "partition.alpha",
        "data.val",
        "public.size",
        "model.name",
        "model.head",
        "method",
        "method.name",
    ],
)
def test_what_a_grid_must_not_search_is_refused(key):
    with pytest.raises(ConfigError, match=rf"space: {key}: keys of method\.\*, train\.\* and arguments of"):
        Space({"train.lr": [0.1], key: [1, 2]}).check("fedcac")


@pytest.mark.parametrize("values", [[], [0.1, 0.1], [1, 1.0], [None, "none"]])
def test_each_value_of_a_key_is_another(values):
    with pytest.raises(ConfigError, match=r"space: method\.tau = .*different values"):
        Space({"method.tau": values}).check("fedcac")


@pytest.mark.parametrize(
    ("method", "key", "whole"),
    [("fedcac", "lr", "train.lr"), ("fedcac", "tau", "method.tau"), ("co-pfl", "p", "method.p")],
)
def test_a_key_without_its_section_is_named_in_whole(method, key, whole):
    with pytest.raises(ConfigError, match=f"^space: {key}: names no section; write {whole}$"):
        Space({key: [1, 2]}).check(method)
