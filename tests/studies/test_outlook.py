"""What a study costs is known before it starts."""

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning
from fedbench.studies.compare import plan_comparisons
from fedbench.studies.outlook import cost, expected_runs, outlook


def test_a_race_of_few_methods_takes_fewer_runs_and_never_more_than_all():
    few, many = expected_runs(3, 2.0, 40), expected_runs(12, 2.0, 40)
    assert 3 * 5 <= few[0] <= few[1] <= 3 * 40
    assert few[1] < many[0] <= many[1] <= 12 * 40


def test_nothing_is_undecided_after_the_first_look_where_any_difference_is_too_small_to_matter():
    assert expected_runs(4, 1000.0, 40) == (20, 20)


def test_the_runs_of_a_race_are_those_of_its_first_look_and_what_it_adds_is_said():
    tuning = ComparisonTuning(tune=0, until_decided=True, margin=1.0, max_seeds=40)
    config = tuning.with_final_seeds(Config(rounds=1))
    studies, _, _ = plan_comparisons(config, ["fedper"], tuning)
    runs, test = cost(studies)
    assert runs.startswith("20 runs for the first 5 seeds, ")
    assert " gradient steps: about " in runs
    assert test.startswith("until it is decided, usually ")
    assert test.endswith(" more, for 40 seeds")


def test_nothing_is_usual_of_scores_that_are_no_share():
    tuning = ComparisonTuning(tune=0, until_decided=True, margin=0.01, max_seeds=40)
    config = tuning.with_final_seeds(Config(rounds=1, evaluate={"metric": "loss"}))
    _, test = cost(plan_comparisons(config, ["fedper"], tuning)[0])
    assert test.startswith("until it is decided, at most ")
    assert test.endswith(" more, for 40 seeds")


def test_a_single_point_is_listed_too_unless_it_is_the_defaults():
    studies, _, _ = plan_comparisons(Config(rounds=1, seeds=[0]), ["fedper"], ComparisonTuning(tune=1))
    lines = list(outlook(studies))
    assert lines[:2] == ["fedper: 1 candidate of train.lr, train.epochs", "  lr=0.01,epochs=5"]
    studies, _, _ = plan_comparisons(Config(rounds=1, seeds=[0]), ["fedper"], ComparisonTuning(tune=0))
    assert list(outlook(studies))[:2] == ["fedper: 1 candidate of its defaults", "local: 1 candidate of its defaults"]


def test_what_is_not_tuned_because_it_is_set_is_said():
    config = Config(rounds=1, seeds=[0], train={"lr": 0.1, "epochs": 2})
    studies, _, _ = plan_comparisons(config, ["fedper", "fedcac:tau=0.5"], ComparisonTuning(tune=1))
    lines = list(outlook(studies))
    assert lines[0] == "fedper: 1 candidate of what is set"
    assert lines[-3] == "not tuned, because set: train.epochs, train.lr"
    assert lines[-2].startswith("one learning rate each: for any method no other one is tried")
