"""The list of methods, and the options of one."""

import pytest

from fedbench.cli import main
from fedbench.methods import names
from fedbench.methods.base import Method
from fedbench.methods.fedper import FedPer


def test_methods_lists_all_of_them(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == names()


def test_methods_shows_the_options_of_one(capsys):
    assert main(["methods", "fedprox"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Li et al., MLSys 2020" in text
    assert "--method.mu weight of the proximal term, eq. 2 [number >= 0; default 0.01]" in text


def test_methods_says_where_one_decides_and_how_its_paper_trains(capsys):
    assert main(["methods", "fedcac"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Where we decide: - Overlap: the paper prints |M_i - M_j| / 2n" in text
    assert "trains with train.lr 0.1, not 0.01; train.batch_size 100, not 50." in text
    assert main(["methods", "fedobp"]) == 0
    assert "The paper's advice is .9995" in " ".join(capsys.readouterr().out.split())
    assert main(["methods", "co-pfl"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "- Reading: working (server_rule=per_index merge_mask=client loo_update=same_round)." in text
    assert "literal reading is `server_rule=or_mask merge_mask=server loo_update=current`" in text
    assert main(["methods", "fedprox"]) == 0
    assert "Where we decide" not in capsys.readouterr().out


class Derived(FedPer):
    """The own idea of somebody."""


def test_a_class_without_a_paper_of_its_own_does_not_take_its_base_s(capsys):
    assert main(["methods", "tests.cli.test_methods:Derived"]) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first == "tests.cli.test_methods:Derived: derives from FedPer"
    assert second == "The own idea of somebody."
    assert "Arivazhagan" not in " ".join(rest)


def test_methods_lists_no_option_without_an_effect(capsys):
    for name in ("local", "centralized", "fedmosaic"):
        assert main(["methods", name]) == 0
        text = capsys.readouterr().out
        assert "method.weighting" not in text
        assert "method.buffers" not in text


@pytest.mark.parametrize("words", [["fedprocs"], ["fedprox", "fedcac"], ["--all"]])
def test_methods_refuses_what_it_does_not_know(words, capsys):
    assert main(["methods", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


class NoDefault(Method):
    """Its option has no default."""

    class Options(Method.Options):
        strength: int


class WrongDefault(Method):
    """Its default is of another type."""

    class Options(Method.Options):
        strength: int = "strong"


@pytest.mark.parametrize("kind", [NoDefault, WrongDefault])
def test_options_without_a_default_of_their_type_are_refused_in_one_line(kind, capsys):
    assert main(["methods", f"tests.cli.test_methods:{kind.__name__}"]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert "method.strength" in line
