"""What a method is tuned over."""

import re
from dataclasses import replace

import numpy as np
import pytest
from ray import tune

from fedbench import methods
from fedbench.errors import ConfigError
from fedbench.studies.space import (
    Space,
    at_an_end,
    beside,
    check_space,
    check_values,
    distribution,
    distribution_text,
    is_rate,
    limits_of,
    next_past_end,
)

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


def test_what_tune_can_list_is_a_list():
    axes = {"train.lr": tune.choice([0.1, 0.2]), "train.epochs": tune.grid_search([1, 5])}
    assert Space(axes).axes == {"train.lr": [0.1, 0.2], "train.epochs": [1, 5]}


def test_values_are_pythons_numbers_in_place_of_those_of_numpy():
    axes = Space({"train.lr": [np.float64(0.1), np.float32(0.5)], "train.shuffle": [np.True_], "b": np.arange(2)}).axes
    assert axes == {"train.lr": [0.1, 0.5], "train.shuffle": [True], "b": [0, 1]}
    assert {type(value) for values in axes.values() for value in values} == {float, bool, int}


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
    assert distribution_text(distribution(text)) == words


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


def test_a_constraint_that_fails_is_named_with_its_line():
    def fails(values):
        raise ValueError("boom")

    with pytest.raises(ConfigError, match=r"CONSTRAINT .* fails at tau=0.1,lr=0.01: ValueError: boom \(test_space.py:"):
        Space(AXES, fails).points()


def test_a_choice_is_a_list_and_other_words_are_no_distribution():
    assert distribution("choice(1, none, a)") == [1, "none", "a"]
    assert distribution("0.1,0.5") is distribution("0.1 (or so)") is None
    with pytest.raises(ConfigError, match=r"unknown distribution 'unifrom': did you mean uniform"):
        distribution("unifrom(0, 1)")
    with pytest.raises(ConfigError, match=r"space: loguniform\(-1, 1\): .*for example loguniform"):
        distribution("loguniform(-1, 1)")


def test_the_papers_grid_where_there_is_one():
    assert Space.paper("co-pfl").axes["method.personalization_rate"] == [0.01, 0.05, 0.15, 0.25, 0.40, 0.50]
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
        check_space({"train.lr": [0.1], key: [1, 2]}, "fedcac")


@pytest.mark.parametrize("values", [[], [0.1, 0.1], [1, 1.0], [None, "none"]])
def test_each_value_of_a_key_is_another(values):
    with pytest.raises(ConfigError, match=r"space: method\.tau = .*different values"):
        check_space({"method.tau": values}, "fedcac")


@pytest.mark.parametrize(
    ("method", "key", "whole"),
    [("fedcac", "lr", "train.lr"), ("fedcac", "tau", "method.tau"), ("co-pfl", "p", "method.p")],
)
def test_a_key_without_its_section_is_named_in_whole(method, key, whole):
    with pytest.raises(ConfigError, match=f"^space: {key}: names no section; write {whole}$"):
        check_space({key: [1, 2]}, method)


@pytest.mark.parametrize(
    ("key", "values", "best", "end"),
    [
        ("train.lr", [0.01, 0.1, 1.0], 1.0, True),
        ("train.lr", [0.01, 0.1, 1.0], 0.01, True),
        ("train.lr", [0.01, 0.1, 1.0], 0.1, False),
        ("train.lr", [0.01, 0.1], 0.1, True),  # of rates two are a scale
        ("train.lr", [0.1], 0.1, False),
        ("train.momentum", [0.5, 0.9], 0.9, False),  # a choice of two has no ends
        ("train.momentum", [0.0, 0.5, 0.9], 0.0, False),  # nothing below is legal
        ("train.momentum", [0.0, 0.5, 0.9], 0.9, True),
        ("method.tau", [0.5, 0.7, 1.0], 1.0, False),  # nothing above is legal
        ("method.beta", [None, 10.0, 30.0], None, False),
        ("method.beta", [None, 10.0, 20.0, 30.0], 30.0, True),
    ],
)
def test_the_end_of_a_scale_is_where_a_better_value_may_lie_beyond(key, values, best, end):
    assert at_an_end("fedcac", {}, [{key: value} for value in values], {key: best}) == ([key] if end else [])


@pytest.mark.parametrize(
    ("tried", "best", "end"),
    [
        ([0.03, 0.1, 1.0], 1.0, True),
        ([0.03, 0.1, 1.0], 0.1, False),
        ([0.003, 0.1], 0.003, True),
        ([0.01, 0.1, 0.3], 0.3, True),
        ([0.3, 1.0, 3.0], 1.0, False),  # tried past the end of the space
    ],
)
def test_the_end_of_the_space_is_one_however_few_points_were_tried(tried, best, end):
    whole = {"train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0], "method.beta": [10.0, 30.0]}
    points = [{"train.lr": value, "method.beta": 10.0} for value in tried]
    assert at_an_end("fedcac", whole, points, {"train.lr": best, "method.beta": 10.0}) == (["train.lr"] if end else [])
    drawn = {"train.lr": tune.loguniform(0.003, 1.0)}
    assert at_an_end("fedcac", drawn, points[:1], {"train.lr": best}) == []


@pytest.mark.parametrize(
    ("tried", "whole", "best", "found"),
    [
        ([0.01, 0.03, 0.1], None, 0.1, 0.3333),
        ([0.03, 0.1, 0.01], [0.001, 0.01, 0.03, 0.1], 0.01, 0.001),
        ([1, 5, 10], None, 10, 20),
        ([1, 5, 10], None, 1, 1),
        ([1, 2, 5], None, 5, 8),
        ([0.3, 0.5, 0.7], None, 0.3, 0.1),
        ([0.1], [0.01, 0.03, 0.1], 0.1, 0.3333),
        ([0.01, 0.1], [0.01, 0.03, 0.1], 0.01, 0.003333),
    ],
)
def test_the_next_value_past_an_end(tried, whole, best, found):
    assert next_past_end(tried, whole, best) == pytest.approx(found)


@pytest.mark.parametrize("axes", [{"train.lr": 0.1}, {"train.lr": "0.1,0.2"}, {1: [1, 2]}])
def test_a_key_without_a_list_of_values_is_refused(axes):
    with pytest.raises(ConfigError, match=r"^space: .*: a key with a list of values or a distribution is expected, "):
        check_values(axes)


def test_values_are_lists_arrays_and_distributions():
    axes = {"train.lr": np.array([0.1, 0.2]), "train.epochs": (1, 2), "method.mu": tune.uniform(0, 1)}
    check_values(axes)
    assert Space(axes).axes["train.lr"] == [0.1, 0.2]
    assert type(Space({"train.epochs": np.array([1, 2])}).axes["train.epochs"][0]) is int  # goes into JSON


def test_a_step_past_an_end_stops_at_the_limit_of_the_key():
    limits = limits_of("knn-per", "method.lam")
    assert limits == {"ge": 0, "le": 1}
    assert next_past_end([0.5, 0.7, 0.9], None, 0.9, limits) == 1
    assert next_past_end([0.1, 0.3, 0.5], None, 0.1, limits) == 0
    assert next_past_end([0.2, 0.3, 0.4], None, 0.4, limits) == pytest.approx(0.5)
    assert not at_an_end("knn-per", {}, [{"method.lam": lam} for lam in (0.5, 0.7, 1.0)], {"method.lam": 1.0})
    assert "le" not in limits_of("fedavg", "train.lr")


@pytest.mark.parametrize(
    ("tried", "whole", "best", "found"),
    [
        ([0.01, 0.1], [0.01, 0.03, 0.1], 0.01, [(0.03, False), (0.003333, True)]),
        ([0.01, 0.1, 1.0], [0.01, 0.03, 0.1, 0.3, 1.0], 0.1, [(0.03, False), (0.3, False)]),
        ([0.1, 0.3], None, 0.3, [(0.1, False), (0.9, True)]),
        ([0.01, 0.03, 0.1, 0.3], [0.01, 0.03, 0.1], 0.1, [(0.03, False), (0.3, False)]),
        ([0.1], None, 0.1, []),
    ],
)
def test_a_rate_lies_between_its_neighbours_or_the_next_past_an_end(tried, whole, best, found):
    values = beside("fedavg", "train.lr", tried, whole, best)
    assert values == [(pytest.approx(value), is_past) for value, is_past in found]
    assert beside("fedavg", "train.momentum", tried, whole, best) == []


def test_options_that_are_rates_are_declared():
    assert is_rate("fedpac", "method.head_lr", of_run=True)
    assert is_rate("fedavg", "train.lr_scale", of_run=True)
    assert is_rate("fedas", "method.align_lr")
    assert not is_rate("fedas", "method.align_lr", of_run=True)
    assert not is_rate("fedprox", "method.mu")
    assert not is_rate("fedselect", "method.personalization_rate")
    named = [
        (name, key)
        for name in methods.names()
        for key in methods.load(name).Options.model_fields
        if "lr" in key.split("_")
    ]
    assert [pair for pair in named if not is_rate(pair[0], f"method.{pair[1]}")] == []
