"""Which job is next, and how far trials are."""

from types import SimpleNamespace

from ray.exceptions import OutOfMemoryError
from ray.tune.search import Searcher

from fedbench.config import Config
from fedbench.jobs import tune_callbacks
from fedbench.jobs.gpu_shares import GpuShares
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.run_job import write_error
from fedbench.jobs.tune_callbacks import job_queue, progress_callback, trial_name


def job(folder, label="fedper", seed=90, **values) -> Job:
    config = Config(rounds=9, seeds=[seed], resources={"gpus_per_host": 0})
    return Job(config, folder, label, "candidate", values, study=folder.parent / "study")


def trial(own: Job) -> SimpleNamespace:
    return SimpleNamespace(trial_id=own.name, config={"job": own})


def test_known_jobs_go_first_then_what_is_proposed(tmp_path):
    known, further = [job(tmp_path / "a")], [[job(tmp_path / "b")], []]
    write_error(known[0], "KeyError")
    jobs = job_queue(known, lambda: further.pop(0), GpuShares())
    given = [jobs.suggest("1"), jobs.suggest("2")]
    assert [own["job"].folder.name for own in given] == ["a", "b"]
    assert jobs.suggest("3") is None, "more may follow from those that run"
    assert known[0].outcome() == Outcome("missing")  # what failed is tried anew
    for trial_id in ("1", "2"):
        further.append([])
        jobs.on_trial_complete(trial_id)
    assert jobs.suggest("3") == Searcher.FINISHED
    assert known[0].outcome() == Outcome("failed", "it ended without a result: is the disk full?")


def test_jobs_that_follow_from_others_are_looked_for_when_one_has_ended(tmp_path):
    looks, found = list[int](), [[], [job(tmp_path / "b")], []]
    jobs = job_queue([job(tmp_path / "a")], lambda: looks.append(1) or found.pop(0), GpuShares())
    jobs.suggest("1")
    assert [jobs.suggest("2"), jobs.suggest("2")] == [None, None]
    assert len(looks) == 1, "not at every step of Tune"
    jobs.on_trial_complete("1")
    assert jobs.suggest("2")["job"].folder.name == "b"


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
