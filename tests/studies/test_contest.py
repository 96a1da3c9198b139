"""Two stages and the choice between them."""

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import Entry, Plan
from fedbench.studies.contenders import Contender
from fedbench.studies.contest import Contest, asked_with_seeds, legal_point, legal_share, unique
from fedbench.studies.folder import changes
from fedbench.tasks import load

POINTS = ({"train.lr": 0.01}, {"train.lr": 0.1}, {"train.lr": 1.0})


def contest(tmp_path, scores: dict[float, list[float | None]], seeds=(90, 91), final_val=None) -> Contest:
    """A contest whose points have these validation scores on the tuning seeds."""
    entries = [
        Entry("candidate", "local", {"train.lr": lr}, seed, "x", "done" if score else "failed", None, {"val": score})
        for lr, own in scores.items()
        for seed, score in zip(seeds, own, strict=True)
    ]
    plan = Plan("compare", None, {}, entries)
    asked, local = Config(seeds=[0, 1], model="mlp"), Contender("local", "local", {}, POINTS)
    return Contest(plan, asked, [local], tmp_path, tmp_path, list(seeds), final_val=final_val)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({0.01: [0.5, 0.5], 0.1: [0.9, 0.2], 1.0: [0.6, 0.6]}, 1.0),
        ({0.01: [0.5, 0.5], 0.1: [0.5, 0.5], 1.0: [0.4, 0.4]}, 0.01),  # the first of equals
        ({0.01: [0.5, 0.5], 0.1: [0.9, None], 1.0: [0.4, 0.4]}, 0.01),  # half a score is none
    ],
)
def test_the_best_mean_over_the_tuning_seeds_is_chosen(scores, chosen, tmp_path):
    made = contest(tmp_path, scores)
    made.choose(load("classification").primary)
    assert made.plan.choices == {"local": {"train.lr": chosen}}


def test_where_no_point_finished_nothing_is_chosen(tmp_path):
    made = contest(tmp_path, {0.01: [None, None], 0.1: [None, 0.3], 1.0: [None, None]})
    made.choose(load("classification").primary)
    assert made.plan.choices == {}


def test_a_lower_error_is_better(tmp_path):
    made = contest(tmp_path, {0.01: [0.5, 0.5], 0.1: [0.1, 0.3], 1.0: [0.4, 0.4]})
    made.choose(load("regression").primary)
    assert made.plan.choices == {"local": {"train.lr": 0.1}}


def test_points_are_tried_under_the_keys_of_a_trial_and_final_runs_have_their_own_seeds(tmp_path):
    made = contest(tmp_path, {})
    made.contenders = [Contender("local", "local", {"rounds": 9}, POINTS[:2], {"rounds": 3}, (4, 5))]
    tried = made.candidates()
    assert {job.config.rounds for job in tried} == {3}
    assert tried[0].values == POINTS[0], "what is chosen is the point alone"
    made.plan.choices = {"local": POINTS[1]}
    final = made.finals()
    assert [(job.config.rounds, job.config.train.lr, job.seed) for job in final] == [(9, 0.1, 4), (9, 0.1, 5)]


def test_tuning_seeds_are_none_of_the_final_ones(tmp_path):
    with pytest.raises(ConfigError, match="tune_seeds: 1 is also a final seed"):
        contest(tmp_path, {}, seeds=(90, 1)).check()


def test_final_runs_differ_from_what_was_tried_in_what_they_hold_out_alone(tmp_path):
    choice = {"train.lr": 0.1}
    found = {}
    for share in (None, 0.0):
        made = contest(tmp_path, {}, final_val=share)
        made.plan.choices["local"] = choice
        found[share] = made.finals()
    assert [job.values for job in found[0.0]] == [choice] * 2
    for same, other in zip(found[None], found[0.0], strict=True):
        assert changes(same.config, other.config) == ["data.val: 0.1 -> 0.0"]


def test_points_and_shares_that_are_legal():
    assert legal_point("after_fit") == "after_fit"
    assert (legal_share(None), legal_share(0)) == (None, 0)
    with pytest.raises(ConfigError, match="point = globall"):
        legal_point("globall")
    with pytest.raises(ConfigError, match="final_val = -1"):
        legal_share(-1)


def test_three_seeds_unless_others_are_asked_for():
    assert asked_with_seeds(Config()).seeds == [0, 1, 2]
    assert asked_with_seeds(Config(seeds=[5])).seeds == [5]
    with pytest.raises(ConfigError, match="tune_seeds"):
        unique([3, 3])
