"""A file of a run that is missing or damaged is named."""

import json

import pytest

from fedbench.errors import ConfigError
from fedbench.studies.run import run
from tests.runtime.rounds import described, small


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


def test_a_partition_kept_as_arrays_is_whole_or_said_to_be_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.jobs.description.MANY", 9)
    config = small(rounds=1, out=str(tmp_path / "a"))
    run(config, report=False)
    run(config, report=False)
    path = tmp_path / "a" / "partition.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"partition\.npz: cut from \d+ to \d+ bytes; bring the file back"):
        run(config, report=False)
