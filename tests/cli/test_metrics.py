"""Metrics of kept predictions from the command line."""

import pandas as pd
import pytest

from fedbench.cli.metrics import main
from fedbench.studies.run import run
from tests.runtime.rounds import small

OWN = "tests.studies.other_tasks:half_score"


def test_the_table_is_printed_and_every_clients_value_is_written(tmp_path, capsys):
    run(small(rounds=1, save_predictions=True, out=str(tmp_path)), report=False)
    assert main([str(tmp_path), "--metrics", "f1_macro", OWN]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["metric", "method", "evaluated", "seeds", "mean", "worst", "client", "pooled"]
    assert [line.split()[:4] for line in lines[1:5]] == [
        [name, "fedavg", point, "1"] for name in ("f1_macro", OWN) for point in ("after_fit", "after_agg")
    ]
    assert lines[5:] == [str(tmp_path / f"metrics-{name}.csv") for name in ("f1_macro", "half_score")]
    table = pd.read_csv(tmp_path / "metrics-f1_macro.csv")
    assert set(table["client"]) == {"all", *map(str, range(10))}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "metrics: name some, for example"),
        (["--metrics"], "--metrics: needs one or more values, NAME,..."),
        (["--metrics", ","], "metrics: name some, for example"),
        (["--metrics=x", "--many"], "unknown flag --many"),
        (["f1_macro"], "unexpected argument 'f1_macro'"),
    ],
)
def test_other_words_are_one_line(words, line, tmp_path, capsys):
    assert main([str(tmp_path), *words]) == 2
    assert line in capsys.readouterr().err
