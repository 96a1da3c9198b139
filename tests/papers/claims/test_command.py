"""The command that lists and tests claims."""

import json
from pathlib import Path

from fedbench_papers.claims.command import main, verdict_lines
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.record import RECORDED, ClaimsRecord
from fedbench_papers.claims.study import NOT_RUN


def test_without_rows_it_lists_them_with_their_cost_and_recorded_verdicts_with_their_date(capsys, tmp_path):
    assert main(["--out", str(tmp_path / "none")]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].split()[:4] == ["row", "runs", "steps", "minutes"]
    counted = ClaimsRecord.read(RECORDED).entries
    left = [name for name, row in counted.items() if row["status"] == NOT_RUN and not row["reading_of"]]
    assert not left
    assert "verdict: not run yet" not in text
    reading = lines.index(next(line for line in lines if line.startswith("C1-literal ")))
    assert lines[reading].endswith("another reading of C1")
    assert lines[reading + 1].strip() == "recorded verdict (2026-11-24): a: does not hold; b: does not hold"
    everything, counted = (
        next(line.split() for line in lines if line.startswith(word)) for word in ("readings", "all ")
    )
    assert int(everything[1]) > int(counted[1])
    assert next(line for line in lines if line.startswith("all "))
    row = next(line for line in lines if line.startswith("F4 ")).split()
    assert row[1:3] == ["40", "240,000"]
    assert not (tmp_path / "none").exists()
    assert "recorded verdict (2026-11-24): a: holds; b: does not hold" in text
    dates = sorted(entry["made"] for entry in ClaimsRecord.read(RECORDED).entries.values() if "made" in entry)
    assert f"recorded verdicts: made on {dates[0]} to {dates[-1]} and shipped with fedbench ({RECORDED})" in text
    assert "40 of 40 rows were run, with " in text


def list_with(folder: Path, capsys, *words: str) -> str:
    assert main(["--out", str(folder), *words]) == 0
    return capsys.readouterr().out


def test_ones_own_verdicts_come_before_recorded_ones(capsys, tmp_path):
    (tmp_path / "claims").mkdir()
    recorded = ClaimsRecord.read(RECORDED).entries["F4"]
    rows = [{**recorded, "status": "failed: no memory", "parts": [], "made": "2030-01-01"}]
    (tmp_path / "claims" / "claims.json").write_text(json.dumps({"rows": rows}))
    text = list_with(tmp_path, capsys)
    assert "verdict (2030-01-01): failed: no memory" in text
    shipped = [row for row in ClaimsRecord.read(RECORDED).rows if row["parts"] and "=" not in row["id"]]
    assert text.count("recorded verdict (") == len(shipped) - 1, "F4 is not among them"


def test_other_conditions_show_other_results_only(capsys, tmp_path):
    text = list_with(tmp_path, capsys, "--rounds", "7", "--seeds", "0", "1", "2", "--scale", "0.5")
    assert "recorded" not in text
    assert text.count("verdict: not run yet") == 40 + 11
    assert "conditions: scale 0.5, rounds 7, seeds 0 1 2" in text
    row = next(line for line in text.splitlines() if line.startswith("F4 ")).split()
    assert row[1:3] == ["15", f"{15 * 7 * 20 * 3:,}"], "one batch of 30 images for 20 clients in 3 epochs"
    folder = tmp_path / "claims-scale-0.5-rounds-7-seeds-0-1-2"
    folder.mkdir()
    ClaimsRecord.of([], Conditions()).write(folder / "claims.json")
    assert main(["--only", "F4", "--out", str(tmp_path), "--rounds", "7", "--seeds", "0,1,2", "--scale", ".5"]) == 2
    assert "has results under other conditions (scale 1, rounds of each row," in capsys.readouterr().err


def test_what_rows_decide_is_no_flag(capsys):
    assert main(["--only", "F4", "--train.lr", "3"]) == 2
    assert "--train.lr: not allowed for claims" in capsys.readouterr().err
    for words, said in (
        (["--scale", "0"], "--scale 0: must be above 0"),
        (["--scale", "inf"], "--scale inf: must be"),
        (["--seeds", "90"], "--seeds 90: the seed for tuning and choosing"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err


def test_unknown_rows_and_sets_are_told(capsys, tmp_path):
    assert main(["--only", "F44", "--out", str(tmp_path)]) == 2
    assert "--only F44: unknown row; did you mean F4?" in capsys.readouterr().err
    assert main(["--sources", "cifar=x"]) == 2
    assert "unknown set 'cifar'" in capsys.readouterr().err


def test_help_says_where_sets_come_from(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "--sources DIR | NAME=WHERE" in said
    assert "cifar10_jpeg" in said


def test_the_configuration_is_shown_with_the_rows_that_are_asked_for(capsys):
    assert main(["--only", "F8,C1", "--print-config"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert [line[:5] for line in said] == ["# F8:", "# C1:"]


def test_rows_that_there_are_none_of_are_one_line(capsys):
    for words in (["--only", "Z9"], ["--only", "Z9", "--print-config"]):
        assert main(words) == 2
        assert "--only Z9: unknown row" in capsys.readouterr().err
    assert main(["--only", ","]) == 2
    assert "--only: name one or more rows such as C1,F3, or all" in capsys.readouterr().err


def test_readings_are_named_and_all_of_them_asked_for(capsys):
    assert main(["--only", "C1", "--readings", "all", "--print-config"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# C1")]
    assert [line.split(":")[0] for line in said] == ["# C1", "# C1-literal"]
    assert main(["--only", "C1", "--readings", "literal"]) == 2
    assert "--readings" in capsys.readouterr().err
    rows = list(ClaimsRecord.read(RECORDED).entries.values())
    assert list(verdict_lines(rows, ["C5"])) == [
        "C5   a: leans against the claim; b: undecided",
        "     a holds in 0 of 2 readings; b holds in 0 of 2 readings",
        "     another reading: --only C5-literal (a: leans against the claim; b: undecided)",
    ]
