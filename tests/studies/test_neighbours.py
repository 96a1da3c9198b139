"""Where a better value may lie: past the ends of what was tried, and beside a learning rate."""

import pytest
from ray import tune

from fedbench import methods
from fedbench.studies.neighbours import (
    Neighbour,
    at_an_end,
    beside,
    is_rate,
    limits_of,
    next_past_end,
    untried_neighbours,
)
from fedbench.studies.space import Space


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


def test_the_neighbours_of_a_point_are_the_untried_ones_that_its_space_allows():
    space = Space({"train.lr": [0.01, 0.03, 0.1], "method.mu": [0.0, 0.1, 1.0]}, lambda point: point["method.mu"] < 1.5)
    tried = [{"train.lr": lr, "method.mu": mu} for lr in (0.01, 0.1) for mu in (0.0, 0.1, 1.0)]
    best = {"train.lr": 0.01, "method.mu": 1.0}
    inside = Neighbour("train.lr", {**best, "train.lr": 0.03}, False, True)
    past = Neighbour("train.lr", {**best, "train.lr": 0.003333}, True, True)
    assert list(untried_neighbours("fedprox", space, tried, best, True)) == [inside, past]
    (found,) = untried_neighbours("fedprox", space, [*tried, inside.point], best, False)
    assert found == past
    assert list(untried_neighbours("fedprox", space, [*tried, inside.point, past.point], best, True)) == []
