"""What is asked of how methods are tuned and judged."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.studies.search import Search
from fedbench.studies.tuning import Tuning, legal_seeds, legal_share, require_validation


def test_words_become_what_a_plan_says():
    asked = Tuning.parse(search="random", samples=5, scheduler="asha", tune_seeds=[90, 91], budget_steps=True)
    assert (asked.search, asked.seeds, asked.by_steps) == (Search("random", 5, "asha"), [90, 91], True)
    assert asked.as_plan() == {"point": "after_agg", "search": "random", "scheduler": "asha", "race": None}
    assert Tuning.parse() == Tuning(seeds=[90, 91, 92])


def test_without_a_validation_split_there_is_nothing_to_choose_by():
    require_validation(Config())
    with pytest.raises(ConfigError, match=r"data\.val = 0"):
        require_validation(Config(data={"val": 0}))


def test_points_and_shares_that_are_legal():
    assert Tuning.parse(point="after_fit").point == "after_fit"
    assert (legal_share(None), legal_share(0)) == (None, 0)
    with pytest.raises(ConfigError, match="point = globall"):
        Tuning.parse(point="globall")
    with pytest.raises(ConfigError, match="final_val = -1"):
        legal_share(-1)


def test_ten_seeds_unless_others_are_asked_for():
    assert Tuning().with_final_seeds(Config()).seeds == list(range(10))
    assert Tuning().with_final_seeds(Config(seeds=[5])).seeds == [5]
    with pytest.raises(ConfigError, match="tune_seeds"):
        legal_seeds([3, 3])


def test_a_race_starts_with_the_seeds_of_its_first_look():
    asked = Tuning.parse(until_decided=True, margin=1, max_hours=2.0)
    assert (asked.race, asked.hours) == ({"margin": 1.0, "most": 40}, 2.0)
    assert asked.as_plan()["race"] == asked.race
    assert asked.with_final_seeds(Config()).seeds == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="until_decided takes seeds 0, 1, 2"):
        asked.with_final_seeds(Config(seeds=[7]))
    with pytest.raises(ConfigError, match="tune_seeds: 3 is among the final seeds 0 to 39"):
        Tuning.parse(until_decided=True, margin=1, tune_seeds=[3]).with_final_seeds(Config())


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"margin": 1}, "margin = 1: without effect unless until_decided"),
        ({"max_seeds": 40}, "max_seeds = 40: without effect unless until_decided"),
        ({"until_decided": True}, "margin: until_decided needs the difference that is too small to matter"),
        ({"until_decided": True, "margin": -1}, "margin = -1: until_decided needs"),
        ({"until_decided": True, "margin": 1, "max_seeds": 7}, "max_seeds = 7: must be one of the looks, 5, 8, 12"),
        ({"until_decided": True, "margin": 1, "max_hours": 0}, "max_hours = 0: must be a number > 0"),
    ],
)
def test_what_a_race_refuses(given, line):
    with pytest.raises(ConfigError, match=line):
        Tuning.parse(**given)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"tune": "3"}, "tune = '3': must be a whole number >= 0"),
        ({"tune": -3}, "tune = -3: must be a whole number >= 0"),
        ({"tune": True}, "tune = True: must be a whole number >= 0"),
        ({"tune_seeds": 90}, "tune_seeds = 90: must be a list of whole numbers"),
        ({"until_decided": True, "margin": "1"}, "margin = 1: until_decided needs the difference"),
        ({"until_decided": True, "margin": 1, "max_hours": "8"}, "max_hours = 8: must be a number > 0"),
    ],
)
def test_arguments_of_another_type_are_refused(given, line):
    with pytest.raises(ConfigError, match=line):
        Tuning.parse(**given)


def test_numbers_of_numpy_are_numbers():
    found = Tuning.parse(tune=np.int64(3), tune_seeds=np.arange(2), until_decided=True, margin=np.float64(1))
    assert (found.most, found.seeds, found.race) == (3, [0, 1], {"margin": 1.0, "most": 40})
