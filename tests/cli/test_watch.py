"""The live page, from the command line."""

import pytest

from fedbench.cli.watch import main


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "watch: give the folder of a study first"),
        (["nowhere"], "no such folder"),
        ([".", "--port", "70000"], "--port 70000: must be a whole number from 0 to 65535"),
        ([".", "--train.lr", "1"], "unknown flag --train.lr: "),
    ],
)
def test_mistakes_are_one_line(words, line, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "--port N" in capsys.readouterr().out
