"""The list of methods, and the options of one."""

import pytest

from fedbench.cli import main
from fedbench.methods import names


def test_methods_lists_all_of_them(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == names()


def test_methods_shows_the_options_of_one(capsys):
    assert main(["methods", "fedprox"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Li et al., MLSys 2020" in text
    assert "--method.mu weight of the proximal term, eq. 2 [number >= 0; default 0.01]" in text


@pytest.mark.parametrize("words", [["fedprocs"], ["fedprox", "fedcac"], ["--all"]])
def test_methods_refuses_what_it_does_not_know(words, capsys):
    assert main(["methods", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
