"""Help and the printed configuration."""

import sys
from types import ModuleType

import pytest
import yaml

from fedbench.aggregation import rules
from fedbench.cli import main
from fedbench.cli.flags import CONFIG_KEYS
from fedbench.cli.help import INDENT, USUAL, config_text, table_lines
from fedbench.cli.parse import parse
from fedbench.errors import ConfigError
from tests.cli.reading import config


def test_help_with_a_method_lists_its_options(capsys):
    with pytest.raises(SystemExit):
        parse(["--method", "fedprox", "--help"])
    assert "--method.mu " in capsys.readouterr().out


def test_help_names_every_aggregator_and_lists_the_options_of_one(capsys):
    with pytest.raises(SystemExit):
        parse(["--aggregator", "krum", "--help"])
    words = capsys.readouterr().out.replace(",", " ").replace(";", " ").split()
    assert {*rules.names(), "--aggregator.byzantine", "--aggregator.select"} <= set(words)
    assert "--aggregator.tau" not in words


def test_the_short_help_lists_the_usual_keys_and_names_the_other_one(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    short = capsys.readouterr().out
    with pytest.raises(SystemExit):
        parse(["--help-all"])
    every = capsys.readouterr().out
    assert {*USUAL} <= {*CONFIG_KEYS}
    assert "--train.lr " in short
    assert "--train.width " not in short
    assert "--train.width " in every
    assert short.splitlines()[-1] == f"These are {len(USUAL)} of {len(CONFIG_KEYS)} keys; --help-all lists all."
    assert 2 * len(short.splitlines()) < len(every.splitlines())
    assert "--help-all lists all" not in every


def test_help_names_the_schemes_that_read_a_key(capsys):
    assert main(["run", "--help-all"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "concentration per class (dirichlet, dirichlet-fixed, practical) [number" in said
    assert "(dirichlet-fixed 500, domain, iid, pathological 500)" in said
    assert "number of clients [whole" in said


def test_print_config_fills_in_the_options_of_an_aggregator():
    text = config_text(config("--aggregator krum --aggregator.byzantine 2"), live={"aggregator.byzantine"})
    assert "aggregator:\n  #name: krum " in text
    lines = text.splitlines()
    assert "  byzantine: 2                            # default 1" in lines
    assert "  #select: 1" in lines


def test_print_config_marks_what_differs_and_can_be_read_back(capsys):
    with pytest.raises(SystemExit):
        parse(["--method", "fedprox", "--train.lr", "0.5", "--print-config"])
    text = capsys.readouterr().out
    assert "  lr: 0.5                                 # default 0.01" in text.splitlines()
    assert "  #mu: 0.01" in text.splitlines()
    assert yaml.safe_load(text) == {"method": {"name": "fedprox"}, "train": {"lr": 0.5}}


def test_print_config_has_an_option_given_by_its_symbol_as_set(capsys):
    with pytest.raises(SystemExit):
        parse(["--method", "fedselect", "--method.p", "0.05", "--partition.clients", "10", "--print-config"])
    tree = yaml.safe_load(capsys.readouterr().out)
    assert tree["method"] == {"name": "fedselect", "personalization_rate": 0.05}
    assert tree["partition"] == {"clients": 10}, "a default that is set keeps a source's own number of clients away"


def test_an_option_of_other_methods_names_them():
    with pytest.raises(ConfigError) as caught:
        config_text(config("--method.tau 0.5"))
    assert str(caught.value) == (
        "unknown key method.tau: method fedavg takes buffers, weighting; fedcac, fedcp, floco have it (--method NAME)"
    )


def test_print_config_refuses_options_that_the_method_does_not_have():
    with pytest.raises(ConfigError, match=r"unknown key method\.muu: did you mean mu\?"):
        config_text(config("--method fedprox --method.muu 3"))


def test_columns_are_wrapped_to_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    lines = list(table_lines([("--short", "word " * 30), ("--" + "long" * 10, "x")]))
    assert all(len(line) <= 70 for line in lines)
    assert lines[1].startswith(" " * INDENT + "word")
    assert lines[-2:] == ["  --" + "long" * 10, " " * INDENT + "x"]


def test_help_with_a_data_set_lists_its_keys(capsys, monkeypatch):
    module = ModuleType("mine")
    module.make = lambda: None
    monkeypatch.setitem(sys.modules, "mine", module)
    for argv in (["run", "--data", "mine:make", "--help"], ["data", "mine:make", "--help"]):
        assert main(argv) == 0
        assert "--data.collate " in capsys.readouterr().out
    assert main(["data", "csv:table.csv", "--help"]) == 0
    assert "--data.drop " in capsys.readouterr().out
    assert main(["data", "digits", "--help"]) == 0
    assert "SCHEME" in capsys.readouterr().out
    assert main(["data", "digts", "--help"]) != 0
    assert "did you mean digits" in capsys.readouterr().err
