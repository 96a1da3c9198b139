"""A run's folder is used for nothing else, and done once."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_state import state_of
from fedbench.jobs.schedule import run_jobs
from fedbench.runtime.build import build_learner
from fedbench.studies.run import run
from tests.runtime.rounds import described, small


@pytest.mark.parametrize("size", [0, 500, -1])
def test_a_finished_run_whose_records_are_cut_short_is_not_taken_for_whole(tmp_path, size):
    run(small(rounds=2, out=str(tmp_path)), report=False)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:size])
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(ConfigError) as error:
        run(small(rounds=2, out=str(tmp_path)))
    assert str(error.value) == (
        f"{path}: ends before the last round of a finished run; bring the file back, or delete {tmp_path} to run "
        "it again"
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == left


def cut(path, rows=None) -> None:
    """Leave half of a file, or a whole one with fewer rows."""
    if rows is None:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif path.suffix == ".parquet":
        table = pq.read_table(path)
        pq.write_table(table.slice(0, len(table) - rows), path)
    else:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[rows:]))


@pytest.mark.parametrize("name", ["clients.parquet", "traces.parquet", "timings.jsonl", "metrics.jsonl"])
@pytest.mark.parametrize("rows", [None, 1])
def test_a_finished_seed_whose_records_are_damaged_is_taken_by_no_command(tmp_path, monkeypatch, name, rows):
    monkeypatch.chdir(tmp_path)
    folder = run(small("fedobp", rounds=2), report=False).folder
    job = Job.of(resolve(small("fedobp", rounds=2)).config, 0, Path("results"))
    assert job.folder == folder
    cut(folder / name, rows)
    for again in (
        lambda: run(small("fedobp", rounds=2)),
        lambda: run(small("fedobp", rounds=2, seeds=[0, 1])),
        lambda: run_jobs([job], tmp_path / "scratch", 1, print),
    ):
        with pytest.raises(ConfigError) as error:
            again()
        assert str(error.value).startswith(f"{folder / name}: ")
        assert f"; bring the file back, or delete {folder} to run it again" in str(error.value)


@pytest.mark.parametrize("name", ["clients.parquet", "traces.parquet"])
def test_a_finished_run_without_checksums_is_taken_where_it_can_be_read(tmp_path, name):
    run(small("fedobp", rounds=2, out=str(tmp_path)), report=False)
    summary = json.loads((tmp_path / "summary.json").read_text())
    del summary["crc32"]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    run(small("fedobp", rounds=2, out=str(tmp_path)), report=False)
    cut(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name}: {name} cannot be read"):
        run(small("fedobp", rounds=2, out=str(tmp_path)), report=False)


def test_another_configuration_is_refused_and_its_keys_are_named(tmp_path):
    run(small(rounds=1, out=str(tmp_path)), report=False)
    with pytest.raises(ConfigError) as error:
        run(small(rounds=2, train__lr=0.3, out=str(tmp_path)), report=False)
    assert str(error.value).startswith(f"{tmp_path} holds a run of another configuration (")
    assert "train.lr: 0.1 -> 0.3" in str(error.value)
    assert "rounds: 1 -> 2" in str(error.value)
    assert "\n" not in str(error.value)


def test_other_resources_are_no_other_configuration(tmp_path):
    run(small(rounds=1, out=str(tmp_path)), report=False)
    assert state_of(tmp_path, resolve(small(rounds=1, out=str(tmp_path), checkpoint={"every": 3})).config) == "done"


def test_an_unfinished_run_does_not_go_on_with_other_rows(tmp_path):
    described(small(), tmp_path / "first")
    path = tmp_path / "clients.json"
    path.write_text((tmp_path / "first" / "partition.json").read_text())
    config = small(partition={"name": "file", "clients": 10, "path": str(path)}, out=str(tmp_path / "a"))
    described(config, tmp_path / "a")
    tree = json.loads(path.read_text())
    tree["0"]["clients"].reverse()
    path.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=f"began with another partition: {path} has changed since; bring") as error:
        run(config, report=False)
    assert "\n" not in str(error.value)
    environment = tmp_path / "a" / "environment.json"
    known = json.loads(environment.read_text())
    del known["partition_file_fingerprint"], known["crc32"]
    environment.write_text(json.dumps(known))
    with pytest.raises(ConfigError, match=r"began with another partition \(seed 0\).*; bring it back"):
        run(config, report=False)


@pytest.mark.parametrize("what", ["partition", "weights"])
def test_a_finished_run_is_not_taken_where_a_file_that_it_began_with_has_changed(tmp_path, what):
    described(small(), tmp_path / "first")
    clients, weights = tmp_path / "clients.json", tmp_path / "start.pt"
    clients.write_text((tmp_path / "first" / "partition.json").read_text())
    torch.save(build_learner(resolve(small()), 0).module.state_dict(), weights)
    model = {"name": "mlp", "hidden": 16, "weights": str(weights)}
    partition = {"name": "file", "clients": 10, "path": str(clients)}
    config = resolve(small(rounds=1, model=model, partition=partition, out=str(tmp_path / "a"))).config
    run(config, report=False)
    job = Job(config, tmp_path / "a", "mine")
    run_jobs([job], tmp_path / "scratch", 1, lambda *event: None)
    path = clients if what == "partition" else weights
    path.write_bytes(path.read_bytes() + b" ")
    for again in (lambda: run(config, report=False), lambda: run_jobs([job], tmp_path / "scratch", 1, print)):
        with pytest.raises(ConfigError, match=f"began with (other|another) {what}: {path} has changed since; bring"):
            again()


def test_a_run_whose_configuration_is_gone_does_not_begin_anew(tmp_path):
    config = small(rounds=1, out=str(tmp_path / "a"))
    run(config, report=False)
    (tmp_path / "a" / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"config.yaml: missing, although summary.json is there; bring the file back"):
        run(config, report=False)
