"""A run's folder: named by what was asked, used for nothing else, and done once."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_folder import default_name, locked_folder, state_of
from fedbench.jobs.schedule import run_jobs
from fedbench.runtime.build import build_learner
from fedbench.studies.run import run
from tests.runtime.rounds import described, small


def name(**more) -> str:
    return default_name(resolve(small(**more)).config)


def test_a_name_says_what_was_asked():
    assert name(method="fedper").startswith("fedper-digits-dirichlet-")
    assert name(seeds=[0, 7]).endswith("-s0_7")
    assert name(aggregator="median").startswith("fedavg-digits-dirichlet-median-")
    assert name(data={"name": "tests.runtime.rounds:odd_images"}, partition="iid").startswith(
        "fedavg-tests.runtime.rounds-odd_images-iid-"
    )


def test_many_seeds_have_a_name_of_their_own_that_is_no_longer():
    names = [name(seeds=list(range(count))) for count in range(15, 30)]
    assert len(set(names)) == len(names)
    assert {len(long) for long in names[7:]} == {len(names[-1])}
    assert names[0].endswith("-s0_1_2_3_4_5_6_7_8_9_10_11_12_13_14")


def test_what_decides_the_numbers_decides_the_name_and_nothing_else():
    assert name() == name(resources={"hosts": 2}) == name(checkpoint={"every": 7}) == name(loggers=["csv"])
    changed = [name(train__lr=0.2), name(seeds=[1]), name(rounds=5), name(model={"name": "mlp", "hidden": 17})]
    assert len({name(), *changed}) == 5


def test_a_value_that_is_a_default_has_no_say():
    assert name() == name(train__shuffle=True)


def test_a_folder_is_for_one_command_at_a_time(tmp_path):
    with locked_folder(tmp_path):
        with pytest.raises(ConfigError, match="another command is at work here"), locked_folder(tmp_path, patience=0):
            pass
        waiting = ThreadPoolExecutor(1).submit(lambda: locked_folder(tmp_path).__enter__())
        time.sleep(0.05)
        assert not waiting.done()
    waiting.result(timeout=5)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("summary.json", "", "missing or damaged"),
        ("summary.json", "[1]", "missing or damaged"),
        ("config.yaml", "train: [", "not valid YAML (line 1: "),
        ("config.yaml", "", "a mapping of keys is expected"),
        ("config.yaml", "no: 1", "unknown key no"),
        ("environment.json", "{", "missing or damaged"),
        ("environment.json", "{}", "without the partition_fingerprint of every seed"),
        ("environment.json", '{"partition_fingerprint": [1]}', "without the partition_fingerprint of every seed"),
        ("partition.json", '{"0": {"clients": [', "cut from "),
        ("partition.json", "{}", "cut from "),
    ],
)
def test_a_damaged_file_of_a_run_is_named(tmp_path, name, content, told):
    described(small(), tmp_path / "a")
    (tmp_path / "a" / name).write_text(content)
    with pytest.raises(ConfigError) as error:
        run(small(out=str(tmp_path / "a")))
    assert str(error.value).startswith(f"{tmp_path / 'a' / name}: {told}")
    assert "; bring the file back, or delete " in str(error.value)
    assert "\n" not in str(error.value)
    assert (tmp_path / "a" / "partition.json").exists()


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


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/sub: cannot be written, because .*/file is a file; move it"):
        run(small(out=str(tmp_path / "file" / "sub")))


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


def test_a_configuration_that_another_version_may_have_written_is_said_to_be_so(tmp_path):
    described(small(), tmp_path / "a")
    with (tmp_path / "a" / "config.yaml").open("a") as file:
        file.write("future_key: 1\n")
    told = r"unknown key future_key.*; damaged, or written by another version of fedbench; bring the file back"
    with pytest.raises(ConfigError, match=told):
        run(small(out=str(tmp_path / "a")))


@pytest.mark.parametrize(
    ("content", "told"),
    [('{"0": {"clients": [', "missing or damaged"), ("{}", "without the partition of every seed")],
)
def test_a_damaged_partition_is_named_in_a_run_without_checksums(tmp_path, content, told):
    described(small(), tmp_path / "a")
    environment = tmp_path / "a" / "environment.json"
    tree = json.loads(environment.read_text())
    del tree["crc32"]
    environment.write_text(json.dumps(tree))
    (tmp_path / "a" / "partition.json").write_text(content)
    with pytest.raises(ConfigError, match=f"partition.json: {told}"):
        run(small(out=str(tmp_path / "a")))


@pytest.mark.parametrize(("name", "told"), [("environment.json", "missing or damaged"), ("partition.json", "missing")])
def test_a_missing_file_of_a_run_is_named(tmp_path, name, told):
    described(small(), tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    with pytest.raises(ConfigError, match=f"{name}: {told}; bring the file back"):
        run(small(out=str(tmp_path / "a")))


def test_a_run_whose_configuration_is_gone_does_not_begin_anew(tmp_path):
    config = small(rounds=1, out=str(tmp_path / "a"))
    run(config, report=False)
    (tmp_path / "a" / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"config.yaml: missing, although summary.json is there; bring the file back"):
        run(config, report=False)


def test_what_a_killed_command_left_beside_a_finished_run_goes(tmp_path):
    config = small(rounds=1, out=str(tmp_path))
    run(config, report=False)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / ".report.html.abc.part").write_text("half")
    run(config, report=False)
    assert not (tmp_path / "checkpoint").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_partition_kept_as_arrays_is_whole_or_said_to_be_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.jobs.description.MANY", 9)
    config = small(rounds=1, out=str(tmp_path / "a"))
    run(config, report=False)
    run(config, report=False)
    path = tmp_path / "a" / "partition.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"partition\.npz: cut from \d+ to \d+ bytes; bring the file back"):
        run(config, report=False)
