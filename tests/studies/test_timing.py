"""The time of a study by the clock: side by side, stage by stage, with processes that start, without what is done."""

import pytest

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning
from fedbench.errors import ConfigError
from fedbench.runtime.ray import cluster
from fedbench.studies import timing
from fedbench.studies.compare import compare, plan_comparisons
from fedbench.studies.cost import Cost
from fedbench.studies.outlook import cost, duration_range, time_left_line
from fedbench.studies.timing import PAGE, SLOWEST, LeftRuns, Room, span_of
from tests.runtime.rounds import small

START = 6.0
ALONE = Room(1, 0, False, 4)


def planned(methods=("fedper",), tuning=None, over=None, **more):
    asked = {"rounds": 3, "model": "mlp", "seeds": [0, 1], "resources": {"hosts": 0}} | more
    return plan_comparisons(Config(**asked), list(methods), tuning or ComparisonTuning(tune=0), over)[0]


def test_runs_side_by_side_share_the_time_and_every_process_has_to_start():
    runs = [60.0] * 8
    assert ALONE.seconds(runs, START) == 480
    two = Room(2, 0, True, 4)
    assert two.seconds(runs, START) == 240 + START
    assert two.seconds(runs, START, stages=3) == 240 + 3 * START
    assert Room(8, 0, True, 4).seconds(runs, START) == 120 + 2 * START  # no more cores than there are
    assert two.seconds([60.0, 10.0], START) == 60 + START  # the longest
    assert two.seconds([], START) == 0


def test_hosts_divide_a_run_and_start_for_every_run():
    assert Room(1, 2, True, 2).seconds([60.0] * 8, START) == pytest.approx(4 * 60 + 8 * START + START / 2)


@pytest.mark.parametrize(
    ("hosts", "trials", "room"),
    [
        (0, 1, Room(1, 0, False, 4)),
        (0, 3, Room(3, 0, True, 4)),
        (0, None, Room(4, 0, True, 4)),
        (0, 9, Room(4, 0, True, 4)),
        ("auto", None, Room(4, 0, True, 4)),  # as trials have none
        (2, None, Room(2, 2, True, 4)),
        (2, 1, Room(1, 2, True, 4)),
    ],
)
def test_as_many_runs_go_side_by_side_as_are_asked_for_and_fit(hosts, trials, room, monkeypatch):
    monkeypatch.setattr(timing, "cores", lambda: 4)
    here = cluster.Offer({}, [{"CPU": 4.0, "GPU": 0.0}])
    monkeypatch.setattr(timing, "this_machine", lambda: here)
    assert Room.of(planned(resources={"hosts": hosts}), trials) == room


def test_words_for_how_runs_go():
    assert str(ALONE) == "one run at a time"
    assert str(Room(3, 0, True, 4)) == "3 runs side by side"
    assert str(Room(1, 2, True, 4)) == "one run at a time, each on 2 hosts"


def test_tuning_seeds_count_with_the_points_that_are_tried_on_them():
    (study,) = planned(tuning=ComparisonTuning(tune=4))
    assert [len(certain) for certain, _ in LeftRuns(study).stages()] == [16 + 8 + 8, 8]


def test_neighbours_of_the_best_points_may_be_added_where_a_study_tries_them():
    rule = ComparisonTuning(tune=3, until_decided=True, margin=1.0, max_seeds=12)
    asked = rule.with_final_seeds(Config(rounds=3, model="mlp", resources={"hosts": 0}))
    (study,), _, _ = plan_comparisons(asked, ["fedper"], rule)
    left = LeftRuns(study)
    certain, possible = left.stages()[0]
    assert len(certain) == (3 + 2 + 2) * len(study.compared)
    # Twice, on three seeds: both sides of a rate, of which all methods have one of three values.
    assert len(possible) >= 2 * 3 * 2 * len(study.compared)
    span = span_of([left], ALONE)
    assert span.runs[1] - span.runs[0] == len(possible)
    assert span.seconds[1] > span.seconds[0]
    runs, later = cost([study], trials=1)
    assert runs.startswith(f"{span.runs[0]} to {span.runs[1]} runs for the first 5 seeds, ")
    assert "at most " in later
    assert later.endswith(" more, for 12 seeds")
    assert list(cost([study], 1, hours=2.0))[1].endswith("; no look begins after 2 h 00 min")
    study.plan.search = "random"
    assert LeftRuns(study).stages()[0] == (certain, [])


def test_runs_that_settings_have_in_common_count_once():
    (line,) = cost(planned(["fedcac", "fedper"], over={"method.tau": [0.3, 0.7]}), trials=1)
    assert line.startswith(f"{2 * 2 + 4 * 2} runs, ")  # fedcac twice, fedper and the baselines once


def test_methods_that_are_slow_besides_their_steps_count_as_such():
    (study,) = planned(["fedprox", "gpfl", "tests.studies.test_cost:Twice"])
    left, cost_of = LeftRuns(study), {}
    for method in study.compared:
        run = left.run(method, {})
        seconds = Cost.of(method.config(study.config)).seconds
        cost_of[method.label] = run.least / seconds, run.most / seconds
    assert cost_of["gpfl"][0] > cost_of["fedprox"][1]
    assert cost_of["tests.studies.test_cost:Twice"][1] == pytest.approx(SLOWEST)


def test_what_is_done_is_not_counted_again_and_tells_how_long_the_rest_takes(tmp_path):
    asked = small("fedper", rounds=1, out=str(tmp_path / "out"), seeds=[0, 1])
    compare(asked, ["fedper"], tune=0, trials=1)
    more = asked.model_copy(update={"seeds": [0, 1, 2]})
    (study,), _, _ = plan_comparisons(more, ["fedper"], ComparisonTuning(tune=0))
    (line,) = cost([study], trials=1)
    assert line.startswith("4 runs are left, 8 done, ")
    left = LeftRuns(study)
    run = left.run(study.compared[0], {})
    assert run.least == run.most  # measured
    (study,), _, _ = plan_comparisons(more.model_copy(update={"rounds": 2}), ["fedper"], ComparisonTuning(tune=0))
    assert next(iter(cost([study], trials=1))).startswith("12 runs, ")  # others than those that are done


def test_runs_of_other_studies_in_the_results_folder_are_not_counted_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = small("fedper", rounds=1, seeds=[0])
    compare(asked, ["fedper"], tune=0, trials=1)
    (study,), _, _ = plan_comparisons(asked, ["fedper", "fedprox"], ComparisonTuning(tune=0))
    (line,) = cost([study], trials=1)
    assert line.startswith("1 run is left, 4 done, ")


def test_the_time_left_is_said_when_a_further_stage_begins(tmp_path, caplog):
    caplog.set_level("INFO", logger="fedbench")
    asked = small("fedper", rounds=1, out=str(tmp_path), seeds=[0])
    compare(asked, ["fedper"], tune=2, tune_seeds=[90], trials=1)
    said = [line for line in caplog.messages if " left for " in line]
    assert len(said) == 1  # after tuning, before the final runs
    assert said[0].endswith(" left for 4 runs")


def test_each_look_of_a_race_says_how_long_it_takes(tmp_path, caplog):
    caplog.set_level("INFO", logger="fedbench")
    asked = small("fedper", rounds=1, out=str(tmp_path))
    compare(asked, ["fedper"], tune=0, trials=1, until_decided=True, margin=0.0, max_seeds=8)
    (said,) = [line for line in caplog.messages if " left for " in line]
    assert said.endswith(" runs up to this look")
    assert " left for 0 runs" not in said


def test_time_left_counts_what_is_still_to_be_tried(tmp_path):
    (study,) = planned(tuning=ComparisonTuning(tune=4), out=str(tmp_path))
    assert time_left_line([study], 1).partition(" left for ")[2].startswith("40 to ")


def test_an_estimate_is_one_number_or_a_range():
    assert duration_range(100, 110) == "2 min"
    assert duration_range(50, 200) == "50 s to 3 min"
    assert duration_range(50, 50) == "50 s"
    assert PAGE < 10


def test_what_cannot_be_counted_is_said():
    with pytest.raises(ConfigError, match="model avgcnn: needs images"):
        list(cost(planned(model="avgcnn", data="tests.studies.test_cost:cifar10_of_mine")))
