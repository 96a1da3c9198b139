"""The page of a folder, made from the command line."""

from pathlib import Path

import pytest

from fedbench.cli.report import main
from fedbench.errors import ConfigError
from fedbench.report import make_report
from tests.report.reading import Make


def test_the_command_prints_the_path(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = make_run()
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")


def test_a_folder_without_results_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ConfigError, match="no run here"):
        make_report(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        make_report(tmp_path / "nowhere")
    assert main([str(tmp_path)]) == 2
    begun, _ = capsys.readouterr().err.splitlines()
    assert begun == "writing the report"


@pytest.mark.parametrize("content", ["[]", '{"entries": 1}', "{"])
def test_a_damaged_study_is_one_clear_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("plan.json", "matrix.json"):
        folder = tmp_path / name.removesuffix(".json")
        folder.mkdir()
        (folder / name).write_text(content)
        assert main([str(folder)]) == 2
        _, said = capsys.readouterr().err.splitlines()
        assert said.startswith(f"fedbench: error: {folder / name}: damaged (")
