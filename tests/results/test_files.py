"""Files are written whole, and a half-written line is cut off."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench.results import files
from fedbench.results.plan import Entry
from fedbench.results.schema import CLIENTS_SCHEMA
from tests.results.lines import line
from tests.runtime.rounds import largest_file


def test_appending_after_a_kill_cuts_the_half_line_off(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_text(line(0, 1, "after_agg", 0.5) + '\n{"seed": 0, "rou')
    files.append_lines(path, [line(0, 2, "after_agg", 0.6)])
    assert [json.loads(text)["round"] for text in path.read_text().splitlines()] == [1, 2]


def test_writing_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.mkdir()
    with pytest.raises(ConfigError, match=f"{path}: cannot be written, because {path} is a folder; move it away"):
        files.write_atomically(path, "text")
    assert list(tmp_path.iterdir()) == [path]


def test_columns_that_miss_a_field_of_the_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="round"):
        files.write_parquet_atomically(tmp_path / "clients.parquet", {"seed": [0]}, CLIENTS_SCHEMA)


def test_writing_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    files.write_atomically(path, "a long first text")
    files.write_atomically(path, "short")
    assert path.read_text() == "short"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_half_written_is_swept_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    for name in (".summary.json.abc.part", ".report.html.xyz.part"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".hidden").write_text("the user's")
    with open(tmp_path / ".report.html.xyz.part") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        files.remove_half_written(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", ".report.html.xyz.part"]


@pytest.mark.parametrize("write", [files.write_atomically, lambda path, text: files.append_lines(path, [text])])
def test_a_full_disk_is_said_with_the_files_name(tmp_path: Path, write) -> None:
    path = tmp_path / "metrics.jsonl"
    with largest_file(100), pytest.raises(OSError) as error:
        write(path, "x" * 1000)
    assert error.value.filename == str(path)
    assert error.value.strerror == "File too large"


def test_a_json_file_of_another_shape_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "entry.json"
    path.write_text('{"role": "final", "label": "a", "values": [1], "seed": 0, "path": "."}')
    with pytest.raises(ConfigError) as error:
        files.read_as(Entry, path)
    assert str(error.value).startswith(f"{path}: damaged (values: ")
    assert "), or written by another version of fedbench; bring the file back" in str(error.value)
    assert "\n" not in str(error.value)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match=r"damaged .Is a directory"):
        files.read_as(Entry, path)


def test_a_lock_is_waited_for_and_then_said_in_one_line(tmp_path):
    second = files.hold_file_lock(tmp_path, 0, "busy")
    with (
        files.hold_file_lock(tmp_path, 0, "busy"),
        pytest.raises(ConfigError, match="busy; wait until it ends, or use"),
        second,
    ):
        pass
    with files.hold_file_lock(tmp_path, 0, "busy"):
        assert not list(tmp_path.iterdir())


def test_a_pipe_is_no_file_of_records(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    problems: list[str] = []
    assert files.read_lines(tmp_path / "metrics.jsonl", problems) == []
    os.mkfifo(tmp_path / "clients.parquet")
    assert len(files.read_table(tmp_path / "clients.parquet", CLIENTS_SCHEMA, problems)) == 0
    assert problems == [
        f"{name} cannot be read and is left out (it is a pipe)" for name in ("metrics.jsonl", "clients.parquet")
    ]
    os.mkfifo(tmp_path / "plan.json")
    with pytest.raises(ConfigError, match=r"plan\.json: damaged \(it is a pipe\); bring the file back"):
        files.read_as(dict, tmp_path / "plan.json")
