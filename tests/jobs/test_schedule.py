"""Jobs side by side: what is told of those that are done or fail, and what follows from them."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from ray.exceptions import OutOfMemoryError
from ray.tune import ExperimentAnalysis

from fedbench.errors import ConfigError
from fedbench.jobs.job import ERROR, Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.jobs.schedule import OUT_OF_MEMORY, run_jobs, run_queue
from fedbench.jobs.trial_resources import ray_for
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.runtime.rounds import play, read, small


def test_what_is_done_is_told_and_not_done_again(tmp_path):
    config = resolve(small(rounds=1, out=str(tmp_path / "a"))).config
    run(config, report=False)
    job, told = Job(config, tmp_path / "a", "mine"), []
    found = run_jobs([job], tmp_path / "scratch", None, lambda *event: told.append(event))
    assert found == {job.name: Outcome("done")}
    assert told == [(found, {})]
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("trials", [1, 2])
def test_a_job_that_fails_says_why_and_others_are_done_although_their_process_is_killed(trials, local_ray, tmp_path):
    """Beside others, in a process of its own, which is killed in round 3 and goes on from the checkpoint of round 2."""
    asked = dict(rounds=4, checkpoint={"every": 2})
    broken = resolve(small(**asked)).config.model_copy(deep=True)
    broken.partition.clients = 2000
    deadly = dict(method__name="tests.runtime.accidents:Deadly", method__notes=str(tmp_path / "notes"))
    whole = resolve(small("fedcac", **asked, **(deadly if trials > 1 else {}))).config
    jobs = [Job(broken, tmp_path / "a", "broken"), Job(whole, tmp_path / "b", "whole")]
    found = run_jobs(jobs, tmp_path / "scratch", trials, lambda *event: None)
    failed, done = (found[job.name] for job in jobs)
    assert failed.status == "failed"
    assert failed.error.startswith("ConfigError: ")
    assert (tmp_path / "a" / ERROR).read_text() == failed.error + "\n"
    assert done == Outcome("done")
    assert not (tmp_path / "scratch").exists()
    assert play(small("fedcac", **asked), tmp_path / "undisturbed") == read(tmp_path / "b")
    if trials > 1:
        rounds = [int(line.split()[0]) for line in (tmp_path / "notes").read_text().splitlines()]
        assert rounds == [1] * 10 + [2] * 10 + [3] * (3 + 10) + [4] * 10, "killed once, and nothing done twice"


def test_where_ray_ends_trials_to_save_memory_jobs_run_alone_and_fail_only_then(tmp_path):
    def ended_by(error):
        def end():
            raise RuntimeError("Caught unexpected exception") from error

        return SimpleNamespace(fit=end)

    first, second, third = (Job(small(seeds=[seed]), tmp_path / f"{seed}", "mine") for seed in (1, 2, 3))
    memory = OutOfMemoryError("1 worker was killed\n" * 80)
    queue = SimpleNamespace(running={"1": first, "2": second}, waiting=[third])
    assert run_queue(ended_by(memory), queue) == [first, second, third]
    queue = SimpleNamespace(running={"1": first}, waiting=[third])
    assert run_queue(ended_by(memory), queue) == [third]
    assert (first.outcome(), second.outcome()) == (Outcome("failed", OUT_OF_MEMORY), Outcome("missing"))
    assert run_queue(SimpleNamespace(fit=lambda: None), queue) == []
    with pytest.raises(RuntimeError, match="unexpected"):
        run_queue(ended_by(KeyError("x")), queue)


def test_one_by_one_without_hosts_ray_is_not_needed(tmp_path):
    job, told = Job(resolve(small(rounds=1)).config, tmp_path / "a", "mine"), []
    with ray_for(job.config, 1) as ray:
        assert ray is None
    twin = Job(job.config, job.folder, "the same run under another label")
    found = run_jobs([job, twin], tmp_path / "scratch", 1, lambda outcomes, running: told.append(running))
    assert set(found.values()) == {Outcome("done")}
    assert told == [{job.name: 0.0}, {}]


def test_trials_pause_and_go_on_to_the_same_bits(local_ray, tmp_path):
    config = resolve(small("ditto", rounds=4)).config
    job = Job(config, tmp_path / "a", "ditto", "candidate", {"train.lr": 0.1}, pause=2)
    twin = replace(job, label="the same run to its end", folder=tmp_path / "b")
    run = partial(run_jobs, scratch=tmp_path / "scratch", watch=lambda *event: None)
    found = run([job, twin, replace(twin, pause=None)], trials=2, tune_folder=tmp_path / "tune")
    assert found[job.title] == Outcome("stopped", "stopped after round 2 of 4")
    assert found[replace(twin, pause=None).title] == Outcome("done"), "of a run that is wanted twice the whole"
    assert Records(job.folder).metrics()["round"].max() == 2
    seen = ExperimentAnalysis(str(tmp_path / "tune" / "1")).dataframe()
    assert sorted(seen["round"]) == [2, 4]
    assert list((tmp_path / "tune").rglob("events.out.tfevents*"))
    assert run([job], trials=1)[job.title].status == "stopped", "nothing is left to do"
    assert run([replace(job, pause=None)], trials=1)[job.name] == Outcome("done")
    assert read(job.folder) == read(twin.folder)


def test_further_jobs_are_asked_for_when_there_is_room(tmp_path):
    jobs = [Job(resolve(small(rounds=1, seeds=[seed])).config, tmp_path / f"{seed}", "local") for seed in (1, 2, 3)]
    left = [jobs[1:2], [], jobs[2:]]
    found = run_jobs(jobs[:1], tmp_path / "scratch", 1, lambda *event: None, more=lambda: left.pop(0))
    assert found == {job.name: Outcome("done") for job in jobs[:2]}
    found = run_jobs(jobs, tmp_path / "scratch", 1, lambda *event: None)
    assert found == {job.name: Outcome("done") for job in jobs}


def test_what_is_done_is_checked_whenever_it_comes(tmp_path):
    config = resolve(small(rounds=1)).config
    run(small(rounds=1, train__lr=0.5, out=str(tmp_path / "a")), report=False)
    other, first = Job(config, tmp_path / "a", "of another run"), Job(config, tmp_path / "b", "first")
    left = [[other], []]
    with pytest.raises(ConfigError, match=r"train\.lr"):
        run_jobs([first], tmp_path / "scratch", 1, lambda *event: None, more=lambda: left.pop(0))


@pytest.mark.parametrize("trials", [1, 2])
def test_an_error_in_what_follows_ends_the_jobs(trials, local_ray, tmp_path):
    job = Job(resolve(small(rounds=1)).config, tmp_path / "a", "local")

    def more():
        if job.outcome().status == "done":
            raise ConfigError("no candidate can be chosen")
        return []

    with pytest.raises(ConfigError, match="no candidate can be chosen"):
        run_jobs([job], tmp_path / "scratch", trials, lambda *event: None, more)
