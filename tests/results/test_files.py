"""Files are written whole, and a half-written line is cut off."""

import json
from pathlib import Path

import pytest

from fedbench.results import files
from fedbench.results.schema import CLIENTS_SCHEMA
from tests.results.lines import line


def test_appending_after_a_kill_cuts_the_half_line_off(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_text(line(0, 1, "after_agg", 0.5) + '\n{"seed": 0, "rou')
    files.append_lines(path, [line(0, 2, "after_agg", 0.6)])
    assert [json.loads(text)["round"] for text in path.read_text().splitlines()] == [1, 2]


def test_writing_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.mkdir()
    with pytest.raises(OSError):
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
