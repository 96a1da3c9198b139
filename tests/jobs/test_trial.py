"""A job in a thread of its own, told evaluation by evaluation."""

from dataclasses import replace

import pytest

from fedbench.jobs.job import ERROR, Job
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_job import run_job
from fedbench.jobs.trial import BackgroundJob
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.runtime.rounds import small


def job(folder, **more) -> Job:
    return Job(resolve(small(**more)).config, folder, "mine")


def results(work: BackgroundJob) -> list[dict]:
    found = [work.result()]
    while not found[-1].get("done"):
        found.append(work.result())
    return found


@pytest.mark.parametrize("point", ["after_agg", "after_fit"])
def test_every_evaluation_is_told_at_the_point_that_is_judged(point, tmp_path):
    mine = replace(job(tmp_path / "a"), point=point)
    told = results(BackgroundJob(mine))
    frame = Records(mine.folder).metrics().query("point == @point")
    assert [result["round"] for result in told] == frame["round"].tolist() == [1, 2, 3, 4]
    assert [result["val_accuracy"] for result in told] == frame["val_accuracy"].tolist()
    assert [result["score"] for result in told] == frame["val_accuracy"].tolist()
    assert told[-1]["complete"]
    assert mine.outcome().status == "done"


def test_of_a_score_more_is_better(tmp_path):
    told = results(
        BackgroundJob(job(tmp_path / "a", data="diabetes", partition={"name": "iid", "clients": 4}, rounds=1))
    )
    assert told[-1]["score"] == -told[-1]["val_mse"]


def test_its_numbers_are_those_of_a_plain_run(tmp_path):
    run(small(out=str(tmp_path / "plain")), report=False)
    mine = job(tmp_path / "a")
    results(BackgroundJob(mine))
    assert (mine.folder / "metrics.jsonl").read_bytes() == (tmp_path / "plain" / "metrics.jsonl").read_bytes()


def test_a_job_that_is_left_keeps_what_it_computed_and_goes_on_later(tmp_path):
    asked = dict(rounds=8, checkpoint={"every": 1})
    mine = job(tmp_path / "a", **asked)
    work = BackgroundJob(mine)
    assert work.result()["round"] == 1
    work.stop()
    kept = (mine.folder / "metrics.jsonl").read_text()
    assert 0 < len(Records(mine.folder).metrics()["round"].unique()) < 8
    assert mine.outcome().status == "missing"
    assert run_job(mine) is None
    whole = (mine.folder / "metrics.jsonl").read_text()
    assert whole.startswith(kept)
    run(small(out=str(tmp_path / "plain"), **asked), report=False)
    assert whole == (tmp_path / "plain" / "metrics.jsonl").read_text()


def test_a_failure_is_written_down_and_told(tmp_path):
    mine = job(tmp_path / "a")
    mine.config.partition.clients = 2000
    assert results(BackgroundJob(mine)) == [{"complete": False, "gpu_full": False, "done": True}]
    assert (mine.folder / ERROR).read_text().startswith("ConfigError: ")
