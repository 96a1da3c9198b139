"""Studies run stage by stage, each with a name of its own, by which its progress is shown."""

import logging
from collections import Counter
from types import SimpleNamespace

import pytest

from fedbench.jobs.job import Job
from fedbench.methods.base import Method
from fedbench.results.files import write_json_atomically
from fedbench.results.plan import Plan
from fedbench.runtime.ray.liveness import RayLostError
from fedbench.studies.grid import grid
from fedbench.studies.run_studies import (
    FINALS,
    SCRATCH,
    TUNING,
    lines_about_data,
    longest_first,
)
from fedbench.tracking import loggers
from fedbench.user_code import name_of
from tests.runtime.rounds import small


def test_tuning_grows_by_points_past_the_ends_of_ranges_and_every_stage_has_a_name_of_its_own(tmp_path):
    stages = dict[str, list[int]]()

    def watch(stage, outcomes, running):
        stages.setdefault(stage, []).append(len(outcomes))

    # With rates as low as these the largest is the best, whichever are tried.
    asked = small("fedper", rounds=1, train={"epochs": 5}, out=str(tmp_path), seeds=[0, 1, 2, 3, 4])
    adding_seeds = {"until_decided": True, "margin": 100.0, "max_seeds": 5}
    grid(
        asked,
        space={"train.lr": [1e-3, 3e-3, 1e-2]},
        baselines=["local"],
        tune_seeds=[90, 91],
        trials=1,
        watch=watch,
        **adding_seeds,
    )
    assert list(stages)[:2] == [TUNING, FINALS]
    assert list(dict.fromkeys(stages[TUNING])) == [6, 10, 14, 18], "the better half, and twice one past the end"


def test_side_by_side_the_same_is_tried_and_chosen_as_one_by_one(local_ray, tmp_path):
    plans = []
    for trials in (1, 2):
        asked = small("fedper", rounds=4, checkpoint={"every": 1}, out=str(tmp_path / f"{trials}"), seeds=[0])
        space = {"train.lr": [1e-3, 3e-3, 1e-2]}
        grid(asked, space=space, baselines=[], tune_seeds=[90, 91], trials=trials, watch=lambda *_: None)
        plans.append(Plan.read(tmp_path / f"{trials}"))
    first, second = [{(e.role, e.label, e.name, e.seed): (e.status, e.scores) for e in plan.entries} for plan in plans]
    assert first == second
    assert plans[0].choices == plans[1].choices
    assert Counter(role for role, *_ in first) == {"candidate": 5, "final": 1}


def test_the_worse_half_stops_and_goes_on_where_all_rounds_are_wanted(tmp_path):
    asked = small("fedper", rounds=4, out=str(tmp_path), seeds=[0], checkpoint={"every": 1})
    rates = {"train.lr": [1e-4, 0.03, 0.1]}
    keys = dict(space=rates, baselines=[], tune_seeds=[90, 91], trials=1)

    def interrupt(stage, outcomes, running):
        if sum(outcome.status == "done" for outcome in outcomes.values()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grid(asked, **keys, watch=interrupt)
    first = grid(asked, **keys)
    plan = Plan.read(tmp_path)
    assert {entry.name: entry.status for entry in plan.entries if entry.seed == 90} == {
        "lr=0.0001": "stopped",
        "lr=0.03": "done",
        "lr=0.1": "done",
    }
    assert plan.rounds_saved == (1, 20)
    assert "1 of 20 rounds of tuning were not run" in first.report.read_text()
    grid(asked, **keys, tune_rounds="full")
    plan = Plan.read(tmp_path)
    assert (plan.stopped(), plan.rounds_saved, plan.tune_rounds) == ([], (0, 20), "full")


def test_a_run_that_paused_stays_counted_while_it_goes_on(tmp_path):
    ended, every = list[int](), list[int]()

    def watch(stage, outcomes, running):
        if stage == TUNING:
            ended.append(sum(outcome.status != "missing" for outcome in outcomes.values()))
            every.append(len(outcomes))

    asked = small("fedper", rounds=4, out=str(tmp_path), seeds=[0], checkpoint={"every": 1})
    grid(asked, space={"train.lr": [1e-4, 0.03, 0.1]}, baselines=[], tune_seeds=[90], trials=1, watch=watch)
    assert ended == sorted(ended)
    assert (every[0], every[-1]) == (3, 5), "two of three go on"
    assert ended[-1] == 4, "the fifth ends as the next stage begins"


def test_invalid_points_are_named_before_the_first_trial_by_every_command(tmp_path, caplog):
    told = list[str]()

    def watch(stage, outcomes, running):
        told[:] = told or [line for line in caplog.messages if line.startswith("left out: ")]

    asked = small("fedper", rounds=1, out=str(tmp_path), seeds=[0])
    for seeds in ([90], [90], [90, 91]):  # anew, with nothing left to do, and with trials that are left
        caplog.clear()
        told.clear()
        grid(asked, space={"train.lr": [0.1, -1, "x"]}, baselines=[], tune_seeds=seeds, trials=1, watch=watch)
        lines = [line for line in caplog.messages if line.startswith("left out: ")]
        assert (
            lines
            == told
            == [
                "left out: fedper lr=-1: train.lr = -1: must be a number > 0",
                "left out: fedper lr=x: train.lr = 'x': must be a number > 0",
            ]
        )


def test_what_was_read_is_said_in_whole_once_and_then_where_a_setting_differs():
    first, second = SimpleNamespace(block=["data: a", "clients: 2"]), SimpleNamespace(block=["data: a", "clients: 3"])
    studies = [SimpleNamespace(description=own, setting=f"s{n}") for n, own in enumerate((first, second, None, first))]
    assert [*lines_about_data(studies)] == ["data: a", "clients: 2", "s1: clients: 3"]


def test_jobs_that_take_long_come_first_and_so_do_unknown_ones(tmp_path):
    def job(label: str, seed: int, seconds: float | None = None) -> Job:
        found = Job.of(small(label), seed, tmp_path)
        if seconds is not None:
            found.folder.mkdir(parents=True)
            write_json_atomically(found.folder / "summary.json", {"seconds_per_round": seconds})
        return found

    known = [job("local", 90, 1.0), job("ditto", 90, 2.0), job("ditto", 91, 4.0), job("fedper", 90, 2.5)]
    new = [job(label, seed) for label in ("local", "fedrep", "ditto", "apfl", "fedper") for seed in (0, 1)]
    found = [(job.label, job.seed) for job in longest_first(new, [*known, *new])]
    assert found == [(label, seed) for label in ("fedrep", "apfl", "ditto", "fedper", "local") for seed in (0, 1)]


def test_nothing_of_tune_stays_where_a_study_is_interrupted(tmp_path):
    def interrupt(stage, outcomes, running):
        (tmp_path / SCRATCH).mkdir(exist_ok=True)  # as Ray Tune does
        raise KeyboardInterrupt

    asked = small("fedper", rounds=1, out=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        grid(asked, space={"train.lr": [0.1, 0.2]}, baselines=[], tune_seeds=[90], trials=1, watch=interrupt)
    assert (tmp_path / "plan.json").exists()
    assert not (tmp_path / SCRATCH).exists()


def test_the_page_is_logged_where_ray_dies_after_the_last_run(tmp_path, monkeypatch):
    logged, deaths = list[str](), [RayLostError("Ray died")]
    monkeypatch.setattr(loggers, "log_page", lambda folder, config: logged.append(folder.name))

    def watch(stage, outcomes, running):
        if stage == FINALS and deaths and all(outcome.status == "done" for outcome in outcomes.values()):
            raise deaths.pop()

    asked = small("fedper", rounds=1, out=str(tmp_path / "study"), seeds=[0])
    for _ in range(2):  # the second command finds everything done
        grid(asked, space={"train.lr": [0.1, 0.2]}, baselines=[], tune_seeds=[90], trials=1, watch=watch)
    assert not deaths
    assert logged == ["study"]


class Own(Method):
    """FedAvg, by somebody else."""


def test_new_code_is_checked_once_before_the_first_job(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    caplog.set_level(logging.INFO)
    asked = small(name_of(Own), rounds=1, seeds=[0], out=str(tmp_path / "study"))
    for lines in (1, 0):  # what is done needs no check, and what was checked is known
        grid(asked, space={"train.lr": [0.1]}, baselines=["local"], tune_seeds=[90], trials=1)
        found = [record.message for record in caplog.records if "1 check passed" in record.message]
        assert len(found) == lines
        assert all(line.startswith(name_of(Own)) for line in found)
        caplog.clear()
