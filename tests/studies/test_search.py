"""How points are found, and that the same ones are found again."""

import math

import pytest
from ray import tune

from fedbench.config.tuning import Tuning
from fedbench.errors import ConfigError
from fedbench.studies.search import TriedPoint, points_of, propose
from fedbench.studies.space import Space

RATES = Space({"train.lr": tune.loguniform(1e-4, 1e-1), "train.epochs": [1, 2, 5]}, lambda v: v["train.lr"] < 0.05)


def anything(point) -> bool:
    return True


def searched(space: Space, count: int, start: tuple[TriedPoint, ...] = ()) -> list[TriedPoint]:
    """So many points, where a rate of 0.01 is best."""
    found = list(start)
    while len(found) < count and (point := propose(space, found, anything)) is not None:
        found.append(TriedPoint(point, -abs(math.log10(point["train.lr"]) + 2)))
    return found


def test_a_search_that_was_interrupted_goes_on_as_it_would_have():
    whole = searched(RATES, 14)
    assert searched(RATES, 14) == whole
    assert searched(RATES, 14, tuple(whole[:11])) == whole


def test_proposals_meet_the_condition_and_are_all_different():
    found = [tuple(point.values.values()) for point in searched(RATES, 14)]
    assert len(set(found)) == 14
    assert all(rate < 0.05 for rate, _ in found)


def test_what_is_known_draws_the_search_to_the_best_values():
    rates = [point.values["train.lr"] for point in searched(RATES, 30)]
    off = [abs(math.log10(rate) + 2) for rate in rates]
    assert sum(off[15:]) < sum(off[:15])


def test_a_space_that_is_exhausted_ends_the_search():
    small = Space({"train.lr": [0.01, 0.1], "train.epochs": [1, 5]})
    assert len(searched(small, 10)) == 4
    assert propose(small, [], lambda point: False) is None


def test_distributions_that_optuna_does_not_know_are_named():
    with pytest.raises(ConfigError, match=r"space: .*; use others with --search optuna, or --search random"):
        propose(Space({"train.lr": tune.randn(0, 1)}), [], anything)


def test_the_points_of_each_kind():
    space = Space({"train.lr": [0.01, 0.1, 1.0], "train.epochs": [1, 5]})
    drawn, proposed = (Tuning(search=search, samples=4) for search in ("random", "optuna"))
    assert points_of(space, Tuning(), None, anything) == space.points()
    assert points_of(space, drawn, None, anything) == space.draws(4)
    assert len(points_of(space, drawn, 2, anything)) == 2
    assert points_of(space, proposed, None, anything) == [propose(space, [], anything)]
