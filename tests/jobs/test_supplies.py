"""What a trial takes along to a machine that has neither the data nor the results, and what it leaves."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.prepared import PreparedDataset
from fedbench.jobs.folder_sync import Supplies, supplies_for
from fedbench.jobs.job import ERROR, Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_job import at_most_every, last_line, run_job
from fedbench.runtime.ray.cluster import COMMAND
from tests.runtime.rounds import read, small


def asked(**resources) -> Config:
    return resolve(small(rounds=1, resources={"hosts": 0, "gpus_per_host": 0, **resources})).config


def elsewhere(supplies: Supplies) -> Supplies:
    """As on a machine that does not see the results."""
    return replace(supplies, mark=Path("/nowhere"))


@pytest.fixture
def environment():
    """Which trials change, because their process is theirs."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_on_this_machine_a_trial_needs_nothing(tmp_path):
    job = Job(asked(), tmp_path / "run" / "a", "mine")
    with supplies_for(None, [job]) as supplies:
        assert supplies is None
    assert run_job(job) is None
    assert job.outcome() == Outcome("done")


def test_a_machine_without_data_and_results_does_the_same_job_or_says_why_it_failed(
    tmp_path, local_ray, monkeypatch, environment
):
    here = Job(asked(), tmp_path / "here", "mine")
    run_job(here)
    monkeypatch.setenv(COMMAND, "what was typed")
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "gone"))
    config = asked(address="127.0.0.1:1", scratch=tmp_path / "scratch")
    data = PreparedDataset.of(Dataset.of_run(config))
    job = Job(config, tmp_path / "run" / "a", "mine", data=data)
    broken = Job(config.model_copy(deep=True), tmp_path / "run" / "b", "mine", data=data)
    broken.config.partition.clients = 2000
    with supplies_for(local_ray, [job, broken]) as supplies:
        local_ray.get(supplies.server.data.remote(data))
        shutil.rmtree(tmp_path / "gone")
        monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "empty"))
        assert run_job(job, elsewhere(supplies)) is None
        assert run_job(broken, elsewhere(supplies)) is not None
    assert read(job.folder) == read(here.folder)
    assert job.outcome() == Outcome("done")
    assert len(list((tmp_path / "empty" / "decoded").glob("digits-*/"))) == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["a", "b"]
    assert supplies.environment == {COMMAND: "what was typed"}
    assert (broken.folder / ERROR).read_text().startswith("ConfigError: ")
    assert broken.outcome().status == "failed"


def test_what_is_asked_for_again_too_soon_is_left_out():
    now, calls = [0.0], []
    call = at_most_every(5, lambda: calls.append(now[0]), clock=lambda: now[0])
    for now[0] in (1.0, 5.0, 6.0, 9.9, 10.0):
        call()
    assert calls == [5.0, 10.0]


def test_an_error_is_its_last_line():
    assert last_line(OSError("first\nlast")) == "OSError: last"
    assert last_line(ValueError()) == "ValueError: "
