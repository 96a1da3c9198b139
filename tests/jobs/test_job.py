"""A job is where its seed and its configuration say, and what its folder says of it is what a study hears."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.job import ERROR, Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.runtime.rounds import described, small


def kept(root: Path, seed: int = 0, **more) -> Job:
    return Job.of(resolve(small(**more)).config, seed, root)


def test_a_seed_has_one_place_whatever_the_study_around_it_is_called(tmp_path):
    job = kept(tmp_path, 3)
    assert job.folder.parent == tmp_path / "run"
    assert (job.seed, job.label, job.name) == (3, "fedavg", "fedavg default seed 3")
    assert kept(tmp_path, 3, seeds=[0, 3], name="mine", out=str(tmp_path / "mine")).folder == job.folder
    assert len({job.folder, kept(tmp_path, 4).folder, kept(tmp_path, 3, rounds=9).folder}) == 3


def test_the_seeds_of_a_study_share_no_configuration(tmp_path):
    config = resolve(small(seeds=[0, 3])).config
    one, other = (Job.of(config, seed, tmp_path) for seed in config.seeds)
    one.config.train.lr = 7
    assert other.config.train.lr == config.train.lr == 0.1
    assert config.seeds == [0, 3]


def test_what_became_of_a_job_is_what_its_folder_says(tmp_path):
    job = Job(resolve(small(rounds=1)).config, tmp_path / "a", "mine", values={"train.lr": 0.1})
    assert job.outcome() == Outcome("missing")
    described(job.config, job.folder)
    (job.folder / ERROR).write_text("ValueError: no\n")
    assert job.outcome() == Outcome("failed", "ValueError: no")
    assert job.entry(tmp_path).scores == {}
    run(job.config.model_copy(update={"out": job.folder}), report=False)
    assert job.outcome() == Outcome("done")  # the error was that of an earlier attempt
    entry = job.entry(tmp_path)
    assert (entry.path, entry.seed, entry.label, entry.status, entry.error) == ("a", 0, "mine", "done", None)
    last = Records(job.folder).metrics().query("point == 'after_agg'").iloc[-1]
    assert entry.scores == {"val": last["val_accuracy"], "test": last["test_accuracy"]}


def test_a_job_that_pauses_has_stopped_once_that_round_is_evaluated_whatever_came_after(tmp_path):
    whole = Job(resolve(small(rounds=3)).config, tmp_path / "a", "mine")
    job = replace(whole, pause=2)
    assert (job.last, whole.last) == (2, 3)
    assert job.outcome() == Outcome("missing")
    run(job.config.model_copy(update={"out": job.folder}), report=False)
    assert job.outcome() == Outcome("stopped", "stopped after round 2 of 3")
    assert job.entry(tmp_path).scores == {}, "as if it had not gone on"
    second = Records(job.folder).metrics().query("point == 'after_agg' and round == 2")
    assert job.score_at_pause() == second["val_accuracy"].item()
    lines = (job.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (job.folder / "metrics.jsonl").write_text("".join(lines[: len(lines) // 3]) + '{"seed": 0, "round": 2')
    assert job.outcome().status == "done", "half a line is none"


def test_a_job_whose_place_holds_another_run_is_not_taken_for_done(tmp_path):
    described(resolve(small(rounds=9)).config, tmp_path / "a")
    with pytest.raises(ConfigError, match="holds a run of another configuration"):
        assert Job(resolve(small()).config, tmp_path / "a", "mine").state == "done"
