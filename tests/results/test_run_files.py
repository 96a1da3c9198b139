"""Files that are damaged are left out and named."""

from pathlib import Path

import pytest

from fedbench.results.reader import Records


@pytest.mark.parametrize("name", ["clients.parquet", "summary.json", "partition.json", "environment.json"])
def test_a_damaged_file_is_left_out_and_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b'{"PAR1')
    run = Records(folder)
    assert len(getattr(run, name.split(".")[0])()) == 0
    assert run.problems[0].startswith(f"{name} cannot be read and is left out")


def test_a_folder_in_a_files_place_is_named(folder: Path) -> None:
    (folder / "summary.json").mkdir()
    run = Records(folder)
    assert run.summary() == {}
    assert run.problems == ["summary.json cannot be read and is left out (Is a directory)"]
