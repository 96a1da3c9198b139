"""What is asked of how methods are tuned and judged."""

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.studies.search import Search
from fedbench.studies.tuning import Tuning, legal_point, legal_seeds, legal_share, require_validation, with_final_seeds


def test_words_become_what_a_plan_says():
    asked = Tuning.parse(search="random", samples=5, scheduler="asha", tune_seeds=[90, 91], budget_steps=True)
    assert (asked.search, asked.seeds, asked.by_steps) == (Search("random", 5, "asha"), [90, 91], True)
    assert asked.as_plan() == {"point": "after_agg", "search": "random", "scheduler": "asha"}
    assert Tuning.parse() == Tuning(seeds=[90])


def test_without_a_validation_split_there_is_nothing_to_choose_by():
    require_validation(Config())
    with pytest.raises(ConfigError, match=r"data\.val = 0"):
        require_validation(Config(data={"val": 0}))


def test_points_and_shares_that_are_legal():
    assert legal_point("after_fit") == "after_fit"
    assert (legal_share(None), legal_share(0)) == (None, 0)
    with pytest.raises(ConfigError, match="point = globall"):
        legal_point("globall")
    with pytest.raises(ConfigError, match="final_val = -1"):
        legal_share(-1)


def test_three_seeds_unless_others_are_asked_for():
    assert with_final_seeds(Config()).seeds == [0, 1, 2]
    assert with_final_seeds(Config(seeds=[5])).seeds == [5]
    with pytest.raises(ConfigError, match="tune_seeds"):
        legal_seeds([3, 3])
