"""How the papers plug into fedbench: by nothing that another package could not do as well."""

import pytest

from fedbench.cli import main, usage
from fedbench.tracking.wandb_study import is_overview
from fedbench_papers.claims.command import main as claims
from fedbench_papers.tables.command import main as reproduce


def test_their_commands_stand_beside_those_of_fedbench(capsys):
    lines = {line.split()[0]: line for line in usage().splitlines() if line.startswith("  ")}
    assert lines["claims"].endswith(f" {claims.__doc__}")
    assert lines["reproduce"].endswith(f" {reproduce.__doc__}")
    for name in ("claims", "field", "reproduce"):
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: fedbench {name}")
    assert main(["clams"]) == 2
    assert "unknown command 'clams': did you mean claims?" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["claims.json", "field.parquet", "reproduction.json"])
def test_their_pages_are_made_by_fedbench_report(file, tmp_path, capsys):
    (tmp_path / file).write_text("{")
    assert main(["report", str(tmp_path)]) == 2
    assert f"fedbench: error: {tmp_path / file}: damaged (" in capsys.readouterr().err


def test_a_reproduction_is_a_study_over_its_cells(tmp_path):
    assert not is_overview(tmp_path)
    (tmp_path / "table.csv").write_text("cell,method\n")
    assert is_overview(tmp_path)
    (tmp_path / "plan.json").write_text("{}")
    assert not is_overview(tmp_path)
