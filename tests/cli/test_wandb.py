"""A study sent to W&B from the command line, as far as that goes without an account."""

import pytest

from fedbench.cli.wandb import main
from fedbench.report import make_report
from fedbench.results.settings_file import SettingsFile, settings_of
from tests.report.conftest import write_comparison
from tests.tracking.conftest import no_account  # noqa: F401
from tests.tracking.wandb_files import OfflineRun, segments


@pytest.fixture
def study(tmp_path):
    return write_comparison(tmp_path / "cmp", {"fedper": 0.8, "local": 0.7}, seeds=[0])


def test_without_an_account_it_says_what_it_would_do(study, capsys):
    before = sorted(study.rglob("*"))
    assert main([str(study)]) == 0
    said = capsys.readouterr().out
    assert "2 runs and one for table and report, to project fedbench, group cmp" in said
    assert "Curves by method: after_agg/test_accuracy against round" in said
    assert "no W&B account on this machine: nothing was uploaded" in said
    assert f"wandb login\n  fedbench wandb {study}\n" in said
    assert "left out: fedper seed 0 (run/fedper-{'train.lr': 0.1}): its folder is missing\n" in said
    assert sorted(study.rglob("*")) == before


def test_offline_files_are_written_once_with_the_command_that_sends_them(study, capsys):
    for _ in range(2):
        assert main([str(study), "--wandb.mode", "offline", "--wandb.tags", "paper"]) == 0
        command = capsys.readouterr().out.partition("  wandb sync ")[2]
    paths = [path for name in ("fedper", "local") for path in segments(study / "final" / name)]
    assert [OfflineRun(path).run.job_type for path in paths] == ["fedper", "local"]
    assert all(str(path.parent) in command for path in paths)
    assert str(segments(study)[-1].parent) in command
    assert "paper" in OfflineRun(paths[0]).run.tags


def test_a_dry_run_writes_nothing(study, capsys):
    before = sorted(study.rglob("*"))
    assert main([str(study), "--dry-run", "--wandb.mode", "offline", "--wandb.entity", "me"]) == 0
    assert "to project me/fedbench" in capsys.readouterr().out
    assert sorted(study.rglob("*")) == before


def test_a_folder_above_studies_means_all_of_them(study, capsys):
    write_comparison(study.parent / "other" / "settings" / "alpha=0.1", {"fedper": 0.8}, seeds=[0])
    assert main([str(study.parent)]) == 0
    said = capsys.readouterr().out
    assert "group cmp\n" in said
    assert "group other/alpha 0.1\n" in said


def test_a_study_over_settings_has_a_run_for_the_page_over_all(tmp_path, capsys):
    folder = tmp_path / "both"
    for alpha in (0.1, 0.5):
        write_comparison(folder / "settings" / f"alpha={alpha}", {"fedper": 0.8}, seeds=[0])
    matrix = SettingsFile({}, {"partition.alpha": [0.1, 0.5]}, settings_of({"partition.alpha": [0.1, 0.5]}))
    matrix.write(folder)
    make_report(folder)
    assert main([str(folder), "--wandb.mode", "offline"]) == 0
    said = capsys.readouterr().out
    assert f"{folder}: one run for the overall table and report\n" in said
    (own,) = segments(folder)
    assert str(own.parent) in said
    run = OfflineRun(own)
    assert (run.run.display_name, run.run.run_group, run.run.job_type) == ("both", "both", "study")
    files = {entry.path for entry in run.artifacts["report"].manifest.contents}
    assert files == {"report.html", "table.csv", "table.md", "table.tex", "matrix.json"}
    columns, rows = run.table("final_table")
    assert {row[columns.index("setting")] for row in rows} == {"alpha=0.1", "alpha=0.5"}


def test_disabled_by_the_environment_nothing_is_sent(study, capsys, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert main([str(study)]) == 0
    assert capsys.readouterr().out.endswith("WANDB_MODE=disabled: nothing was uploaded\n")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "wandb: give the folder of a study first"),
        (["nowhere"], "nowhere: no such folder"),
        (["."], "no study or run here"),
        ([".", "--rounds", "3"], "--rounds: a finished study cannot be changed"),
    ],
)
def test_a_mistake_is_one_line(asked, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(asked) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
