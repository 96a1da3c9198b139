"""What is asked of how methods are tuned and judged."""

from inspect import signature

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning, Tuning
from fedbench.errors import ConfigError
from fedbench.studies.compare import compare
from fedbench.studies.grid import grid


def test_what_a_plan_says():
    tuning = ComparisonTuning(search="random", samples=5, tune_rounds="full", budget_steps=True)
    plain = {"point": "after_agg", "search": "random", "tune_rounds": "full", "stopping_rule": None}
    assert tuning.as_plan() == {**plain, "by_steps": True}
    assert Tuning(search="random", samples=5).as_plan() == {**plain, "tune_rounds": "halving"}


def test_ten_seeds_unless_others_are_set():
    assert Tuning().with_final_seeds(Config()).seeds == list(range(10))
    assert Tuning().with_final_seeds(Config(seeds=[5])).seeds == [5]


def test_a_race_starts_with_the_seeds_of_its_first_look():
    tuning = Tuning(until_decided=True, margin=1)
    assert tuning.as_plan()["stopping_rule"] == tuning.stopping_rule == {"margin": 1.0, "most": 40}
    assert tuning.with_final_seeds(Config()).seeds == [0, 1, 2, 3, 4]
    assert Tuning(until_decided=True, margin=0, max_seeds=8).stopping_rule == {"margin": 0.0, "most": 8}
    with pytest.raises(ConfigError, match="until_decided takes seeds 0, 1, 2"):
        tuning.with_final_seeds(Config(seeds=[7]))
    with pytest.raises(ConfigError, match=r"tune_seeds: 3 is among the final seeds 0 to 39"):
        Tuning(until_decided=True, margin=1, tune_seeds=[3]).with_final_seeds(Config())


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"margin": 1}, "margin = 1: without effect unless until_decided"),
        ({"max_seeds": 40}, "max_seeds = 40: without effect unless until_decided"),
        ({"until_decided": True}, "margin: until_decided needs the difference that is too small to matter"),
        ({"until_decided": True, "margin": -1}, "margin = -1: must be a number >= 0 or none"),
        ({"until_decided": True, "margin": "1"}, "margin = '1': must be a number >= 0 or none"),
        ({"until_decided": True, "margin": 1, "max_seeds": 7}, "max_seeds = 7: must be 5, 8, 12, 18, 27, 40, 60, 90"),
        ({"until_decided": True, "margin": 1, "max_hours": 0}, "max_hours = 0: must be a number > 0 or none"),
        ({"until_decided": True, "margin": 1, "max_hours": "8"}, "max_hours = '8': must be a number > 0 or none"),
        ({"tune": "3"}, "tune = '3': must be a whole number >= 1 or none"),
        ({"tune": 0}, "tune = 0: must be a whole number >= 1 or none"),
        ({"tune": True}, "tune = True: must be a whole number >= 1 or none"),
        ({"tune_seeds": 90}, "tune_seeds = 90: must be a list of whole numbers"),
        ({"tune_seeds": []}, r"tune_seeds = \[\]: must be at least one value"),
        ({"tune_seeds": [3, 3]}, r"tune_seeds = \[3, 3\]: give each tune_seed once"),
        ({"point": "globall"}, "point = 'globall': must be after_agg or after_fit"),
        ({"final_val": -1}, r"final_val = -1: must be a number in \[0, 1\) or none"),
        ({"search": "bayes"}, "search = 'bayes': must be grid, random or optuna"),
        ({"tune_rounds": 3}, "tune_rounds = 3: must be halving or full"),
        ({"samples": 3}, "samples = 3: a grid has the candidates that its space lists"),
        ({"search": "random"}, "search = random: how many candidates"),
        ({"search": "optuna", "samples": 3, "tune": 2}, "tune = 2: .* give --samples alone"),
        ({"search": "random", "samples": 0}, "samples = 0: must be a whole number >= 1 or none"),
        ({"until_tolled": True}, "unknown key until_tolled: "),
    ],
)
def test_mistakes_are_one_line(given, line):
    with pytest.raises(ConfigError, match=f"^{line}"):
        Tuning(**given)


def test_a_comparison_may_tune_nothing_and_then_takes_no_keys_of_tuning():
    assert ComparisonTuning(tune=0, tune_seeds=[90, 91, 92]).tune == 0
    with pytest.raises(ConfigError, match=r"^tune = -3: must be a whole number >= 0 or none"):
        ComparisonTuning(tune=-3)
    for more in ({"budget_steps": True}, {"tune_rounds": "full"}, {"tune_seeds": [90]}):
        with pytest.raises(ConfigError, match=rf"^{next(iter(more))}: without effect with tune = 0"):
            ComparisonTuning(tune=0, **more)


def test_numbers_of_numpy_are_numbers():
    found = Tuning(tune=np.int64(3), tune_seeds=np.arange(2), until_decided=True, margin=np.float64(1))
    assert (found.tune, found.tune_seeds, found.stopping_rule) == (3, [0, 1], {"margin": 1.0, "most": 40})
    assert Tuning(tune_seeds=range(90, 92)).tune_seeds == [90, 91]


def test_help_and_notebooks_show_the_keys_as_keywords():
    for function, section in ((grid, Tuning), (compare, ComparisonTuning)):
        shown = signature(function).parameters
        assert {key: shown[key].default for key in section.model_fields} == section().model_dump()
        assert not [one for one in shown.values() if one.kind is one.VAR_KEYWORD]
    with pytest.raises(ConfigError, match="unknown key budget_steps"):
        grid({}, budget_steps=True)
