"""The command that makes the papers' tables again."""

from fedbench.cli.reproduce import main


def test_its_help_names_its_flags(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "--cells" in text
    assert "--sources" in text


def test_mistakes_are_one_line(capsys):
    assert main(["co-pfl/mian"]) == 2
    assert main(["co-pfl/main", "--cells", "svhn"]) == 2
    assert main(["co-pfl/main", "--sources", "cifra10=x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("fedbench: error: ") for line in lines)
