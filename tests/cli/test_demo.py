"""The demo says what it will do before anything else, and is a grid."""

import pytest

from fedbench.cli import demo, grid, main
from fedbench.cli.parse import parse


def test_it_says_first_what_it_does_and_for_how_long_then_runs_that_grid(monkeypatch, capsys):
    said = []

    def run(argv):
        said.append(capsys.readouterr().out)
        assert argv == list(demo.WORDS)
        return 5

    monkeypatch.setattr(grid, "main", run)
    assert main(["demo"]) == 5
    assert "5 to 15 minutes" in said[0]
    assert said[0].endswith(f"{demo.AS_GRID}.\n\n")


def test_its_plan_is_what_the_grid_would_do():
    config, asked = parse(demo.WORDS, grid.FLAGS, tuning=grid.TUNING)
    assert (config.method.name, config.data.name, config.partition.clients) == ("fedcac", "digits", 10)
    assert grid.read_baselines(asked.baselines) == ("local", "centralized", "fedavg-ft")
    assert len(asked.tuning.with_final_seeds(config).seeds) == 5
    assert (asked.tuning.until_decided, asked.tuning.margin) == (True, 2)


@pytest.mark.parametrize("words", [["now"], ["--rounds", "3"]])
def test_it_takes_no_flags(words, capsys):
    assert main(["demo", *words]) == 2
    assert capsys.readouterr().err == (
        f"fedbench: error: demo {' '.join(words)}: takes no flags; to vary it, add them to {demo.AS_GRID}\n"
    )
