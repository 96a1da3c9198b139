"""The command that lists and tests claims."""

from fedbench_papers.claims.command import main


def test_without_rows_it_lists_them_with_their_cost(capsys, tmp_path):
    assert main(["--out", str(tmp_path / "none")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["row", "runs", "steps", "minutes"]
    assert sum(line.strip() == "verdict: not run yet" for line in lines) == 34
    assert lines[-1].startswith("all ")
    row = next(line for line in lines if line.startswith("F4 ")).split()
    assert row[1:3] == ["25", "150,000"]
    assert not (tmp_path / "none").exists()


def test_what_rows_decide_is_no_flag(capsys):
    assert main(["--only", "F4", "--rounds", "3"]) == 2
    assert "--rounds: not allowed for claims" in capsys.readouterr().err


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
