"""A job that is worked on: where it goes on, what is told of it, and what is left of one that is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from fedbench.data.partitions import Partition, partition
from fedbench.errors import ConfigError
from fedbench.jobs.description import DESCRIPTION_FILES
from fedbench.jobs.folder_locks import locked_folder
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_job import open_job, run_seeds
from fedbench.results.events import Evaluation, Remark
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.states import checkpoint
from fedbench.studies.run import run
from tests.runtime.rounds import described, read, small, stop


def test_an_unfinished_run_is_gone_on_with_unasked(tmp_path):
    config, folder = small("fedper", checkpoint={"every": 1}), tmp_path / "a"
    described(config, folder)
    stop(config, folder, 3)
    rounds: list[int] = []
    run(config.model_copy(update={"out": folder}), watch=lambda e: rounds.append(e.round), report=False)
    assert rounds == [2, 3, 4]
    run(config.model_copy(update={"out": tmp_path / "b"}), report=False)
    assert read(folder) == read(tmp_path / "b")


def test_the_same_warning_is_told_once(tmp_path):
    told: list = []
    asked = small(rounds=1, seeds=[0, 1], partition={"name": "dirichlet", "clients": 10, "train_size": 3})
    result = run(asked.model_copy(update={"out": tmp_path}), watch=told.append, report=False)
    warnings = [event.text for event in told if isinstance(event, Remark)]
    assert len(warnings) == len(set(warnings)) > 0
    assert result.summary["warnings"] == warnings


def test_who_waits_for_another_command_says_so(tmp_path):
    job, resolved, dealt = asked(tmp_path / "a")
    told, waits = [], Event()

    def watch(event: Remark) -> None:
        told.append(event.text)
        waits.set()

    def attempt() -> None:
        with open_job(job, resolved, dealt, watch):
            pass

    with ThreadPoolExecutor(1) as pool:
        with locked_folder(job.folder):
            found = pool.submit(attempt)
            assert waits.wait(60)
        found.result(60)
    assert told == [f"{job.folder}: another command is at work here; waiting for its end"]
    with open_job(job, resolved, dealt, watch):
        assert len(told) == 1


def asked(folder: Path) -> tuple[Job, ResolvedRun, Partition]:
    resolved = resolve(small(rounds=1))
    config, dataset = resolved.config, resolved.dataset
    return Job(config, folder, "mine"), resolved, partition(dataset, config, 0)


def fail(job: Job, resolved: ResolvedRun, dealt: Partition, error: Exception) -> None:
    """An error in the midst of a job."""
    with open_job(job, resolved, dealt, lambda event: None):
        assert {path.name for path in job.folder.iterdir()} >= {*DESCRIPTION_FILES} - {"partition.npz"}
        raise error


@pytest.mark.parametrize(("error", "left"), [(ConfigError("no"), False), (ValueError("no"), True)])
def test_a_job_that_is_refused_leaves_no_folder_and_one_that_fails_leaves_what_was_asked(error, left, tmp_path):
    with pytest.raises(type(error), match="no"):
        fail(*asked(tmp_path / "a"), error)
    assert (tmp_path / "a" / "config.yaml").exists() == left
    assert (tmp_path / "a").exists() == left


def test_a_refusal_takes_nothing_away_from_a_run_that_had_begun(tmp_path):
    job, resolved, dealt = asked(tmp_path / "a")
    described(job.config, job.folder)
    before = {path.name: path.read_bytes() for path in job.folder.iterdir()}
    with pytest.raises(ConfigError, match="no"):
        fail(job, resolved, dealt, ConfigError("no"))
    assert {path.name: path.read_bytes() for path in job.folder.iterdir()} == before


def test_a_refusal_in_the_midst_leaves_what_the_same_command_goes_on_from(tmp_path):
    """Before the first line of metrics.jsonl, with a checkpoint."""
    job, resolved, dealt = asked(tmp_path / "a")

    def stopped() -> None:
        with open_job(job, resolved, dealt, lambda event: None):
            checkpoint.save(job.folder / "checkpoint", 1, {})
            raise ConfigError("Ray has died; give the same command again")

    with pytest.raises(ConfigError, match="Ray has died"):
        stopped()
    assert {path.name for path in job.folder.iterdir()} >= {"config.yaml", "environment.json", "checkpoint"}


def test_a_job_that_is_done_by_then_is_left_out(tmp_path):
    job, resolved, dealt = asked(tmp_path / "a")
    told: list = []
    run_seeds(resolved, [job], {0: dealt}, told.append)
    assert [event.round for event in told if isinstance(event, Evaluation)] == [1]
    assert json.loads((job.folder / "environment.json").read_text())["finished"]
    assert not (job.folder / "checkpoint").exists()
    told.clear()
    run_seeds(resolved, [job], {0: dealt}, told.append)
    assert told == []
