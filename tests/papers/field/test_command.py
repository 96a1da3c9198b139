"""`fedbench field`."""

import pytest

from fedbench.cli import main
from fedbench_papers.field.record import FIELD_FILE
from tests.papers.field.made import made_record


def test_help_says_what_is_run_and_what_is_not(capsys):
    assert main(["field", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: fedbench field")
    for flag in ("--only", "--methods", "--shard", "--merge", "--plan", "--sources", "--trials"):
        assert flag in text


def test_without_only_the_settings_are_listed(tmp_path, capsys):
    made_record().write(tmp_path / "field" / FIELD_FILE)
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "settings:\n" + "".join(f"  {n}: {{title: T, like: l, kind: k, config: {{}}}}\n" for n in ("clothes", "new"))
    )
    assert main(["field", "--plan", str(plan), "--out", str(tmp_path)]) == 0
    clothes, new = capsys.readouterr().out.splitlines()
    assert clothes == "clothes  T: 4 methods judged, may be best: fedper, fedavg-ft"
    assert new == "new      T: not run yet"


def test_records_are_merged(tmp_path, capsys):
    made_record().write(tmp_path / "other" / FIELD_FILE)
    assert main(["field", "--merge", str(tmp_path / "other"), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Clothes of yours: try fedavg-ft (+5.0 (+3.0 to +7.0) points over local training)" in out
    assert (tmp_path / "field" / "report.html").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--shard", "1/2"], "--shard: in which settings? Give --only all"),
        (["--methods", "fedper"], "--methods: in which settings?"),
        (["--only", "all", "--merge", "x"], "leave --only, --methods and --shard out"),
        (["--only", "fmnist-dir-0.11"], "no such setting"),
        (["--only", "all", "--shard", "3/2"], "must be K/N"),
        (["--only", "all", "--rounds", "3"], "--rounds: not allowed for the field"),
        (["--only", "styles", "--methods", "fedpre"], "fedper"),
        (["--only", "two-scanners", "--methods", "fedper"], "Give --sources mnist=FOLDER"),
        (["--plan", "none.yaml"], "no such file"),
        (["--only", "all", "--sources", "mnsit=x"], "unknown set 'mnsit'"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_line(flags, words, tmp_path, capsys):
    assert main(["field", *flags, "--hosts", "0", "--trials", "1", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert words in error[-1]
