"""Which job is next, and which is stopped."""

import json
from types import SimpleNamespace

from ray.exceptions import OutOfMemoryError
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from fedbench.config import Config
from fedbench.jobs import tune_callbacks
from fedbench.jobs.gpu_shares import GpuShares
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_job import write_error
from fedbench.jobs.tune_callbacks import asha_per_method, job_queue, progress_callback, scores_by_round, trial_name
from fedbench.studies.run import run
from tests.runtime.rounds import small


def job(folder, label="fedper", seed=90, **values) -> Job:
    config = Config(rounds=9, seeds=[seed], resources={"gpus_per_host": 0})
    return Job(config, folder, label, "candidate", values, study=folder.parent / "study")


def trial(own: Job) -> SimpleNamespace:
    return SimpleNamespace(trial_id=own.name, config={"job": own})


def told(scheduler, own: Job, round: int, score: float) -> str:
    return scheduler.on_trial_result(None, trial(own), {"round": round, "score": score})


def begun(scheduler, tmp_path, count: int, **more) -> list[Job]:
    jobs = [job(tmp_path / f"{more.get('label', 'x')}{i}", **more, **{"train.lr": i}) for i in range(count)]
    for own in jobs:
        own.folder.mkdir()
        scheduler.on_trial_add(None, trial(own))
    return jobs


def test_known_jobs_go_first_then_what_is_proposed(tmp_path):
    known, further = [job(tmp_path / "a")], [[job(tmp_path / "b")], []]
    write_error(known[0], "KeyError")
    jobs = job_queue(known, lambda: further.pop(0), GpuShares())
    given = [jobs.suggest("1"), jobs.suggest("2"), jobs.suggest("3")]
    assert [own["job"].folder.name for own in given[:2]] == ["a", "b"]
    assert given[2] == Searcher.FINISHED
    assert known[0].outcome() == Outcome("missing")  # what failed is tried anew


def test_a_trial_that_falls_behind_those_of_its_method_is_stopped_and_says_when(tmp_path):
    scheduler = asha_per_method([])
    jobs = begun(scheduler, tmp_path, 4)
    decisions = [told(scheduler, own, 1, score) for own, score in zip(jobs, [0.5, 0.6, 0.1, 0.7], strict=True)]
    assert decisions == [TrialScheduler.CONTINUE] * 2 + [TrialScheduler.STOP, TrialScheduler.CONTINUE]
    assert jobs[2].outcome() == Outcome("stopped", "stopped after round 1 of 9", 0.1)
    assert {own.outcome().status for own in (jobs[0], jobs[1], jobs[3])} == {"missing"}
    assert told(scheduler, jobs[0], 2, 0.0) == TrialScheduler.CONTINUE, "no rung"


def test_methods_and_seeds_are_not_set_against_each_other(tmp_path):
    scheduler = asha_per_method([])
    for number, own in enumerate([dict(label="local"), dict(label="fedper"), dict(label="fedper", seed=91)]):
        (only,) = begun(scheduler, tmp_path / str(number), 1, **own) if not (tmp_path / str(number)).mkdir() else []
        assert told(scheduler, only, 1, 0.9 - number / 10) == TrialScheduler.CONTINUE


def test_what_an_earlier_command_saw_counts(tmp_path):
    asked = small(out=str(tmp_path / "old"), rounds=9)
    run(asked, report=False)
    old = Job(resolve(asked).config, tmp_path / "old", "fedper", "candidate", {"train.lr": -1})
    scores = scores_by_round(old)
    assert [round for round, _ in scores] == list(range(1, 10))
    lines = [json.loads(line) for line in (tmp_path / "old" / "metrics.jsonl").read_text().splitlines()]
    assert [score for _, score in scores] == [line["val_accuracy"] for line in lines if line["point"] == "after_agg"]
    scheduler = asha_per_method([old])
    new = job(tmp_path / "new", seed=0)
    new.folder.mkdir()
    scheduler.on_trial_add(None, trial(new))
    assert told(scheduler, new, 1, scores[0][1] - 0.01) == TrialScheduler.STOP


def test_names_are_those_of_files(tmp_path):
    own = trial(job(tmp_path / "a", "my.module:Method", **{"train.lr": 0.1}))
    own.trial_id = "1234"
    assert trial_name(own) == "my.module-Method-lr=0.1-seed-90-1234"


def test_how_far_trials_are_is_told_when_one_begins_or_ends_and_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(tune_callbacks, "check_alive", lambda ray: None)
    own, heard = job(tmp_path / "a"), []
    running = SimpleNamespace(**vars(trial(own)), status="RUNNING")
    for pace, rounds in ((60.0, [0]), (0.0, [0, 2, 3])):
        heard.clear()
        monkeypatch.setattr(tune_callbacks, "REPORT_EVERY", pace)
        told_of = progress_callback(heard.append)
        told_of.on_trial_start(1, [running], running)
        for round_ in (2, 3):
            told_of.on_trial_result(1, [running], running, {"round": round_})
        told_of.on_trial_complete(1, [running], running)
        assert heard == [*({own.name: over / 9} for over in rounds), {}]


def test_a_process_that_ray_ended_for_want_of_memory_is_one_line_with_a_remedy():
    said = "Memory on the node was 61GB / 62GB\n" * 80
    for error in (OutOfMemoryError(said), said):
        line = tune_callbacks.reason_of_end(error)
        assert line.startswith("its process died 4 times: is the machine's memory exhausted? Repeat the command with")
    assert tune_callbacks.reason_of_end(ValueError("first\nlast")) == "ValueError: last"
