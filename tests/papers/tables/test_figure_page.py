"""Figures of the papers: what they need, and what is drawn."""

from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
from fedbench.results.schema import TRACES_SCHEMA
from fedbench_papers.tables.command import main
from fedbench_papers.tables.experiment import Experiment, figures
from fedbench_papers.tables.figure import Figure
from fedbench_papers.tables.page import reproduction_text
from fedbench_papers.tables.reproduce import reproduce
from fedbench_papers.tables.reproduction import CellRecord, ReproductionRecord
from tests.report.conftest import write_comparison
from tests.report.reading import page_of

OVER = Figure("values", {"ours": "fedcac"}, "share", {"local": "local"}, "method.tau", (0.1, 0.5, 0.9), (0.2, 0.4))


def record(out, figure: Figure, runs: dict[str, float], scale: str = "full", **more) -> ReproductionRecord:
    """A figure of one cell with such runs."""
    write_comparison(out / "cells" / "x", runs)
    cell = CellRecord("digits, all", "cells/x", None, False, "last", [], [], **more)
    made = ReproductionRecord("paper/figure-1", "a picture", scale, ["tau: not said"], {}, None, [cell], asdict(figure))
    made.write(out)
    return made


def picture(out) -> dict:
    return page_of(out).charts["figure-0"]


def test_a_record_of_a_figure_is_read_as_it_was_written(tmp_path):
    made = record(tmp_path, OVER, {"local": 0.7})
    found = ReproductionRecord.read(tmp_path)
    assert Figure.of(found.figure) == OVER == Figure.of(made.figure)


def test_an_option_is_drawn_with_its_values_and_a_level_line(tmp_path):
    record(tmp_path, OVER, {"ours tau=0.1": 0.6, "ours tau=0.9": 0.8, "local": 0.7})
    ours, level = picture(tmp_path)["data"]
    assert (ours["name"], ours["x"]) == ("ours", ["0.1", "0.5", "0.9"])
    assert ours["y"][1] is None
    assert (ours["y"][0], ours["y"][2]) == (pytest.approx(60, abs=8), pytest.approx(80, abs=8))
    assert len(set(level["y"])) == 1
    text = reproduction_text(tmp_path)
    assert "paper/figure-1: 3 of 4 numbers run, in 1 panel." in text
    assert "not run" in text
    assert "tau: not said" in page_of(tmp_path).text
    assert (tmp_path / "table.csv").read_text().startswith("cell,line,at,mean,low,high,seeds")


def test_curves_are_over_rounds_at_the_recorded_point(tmp_path):
    figure = Figure("rounds", {"a": "fedper", "b": "fedcac"})
    record(tmp_path, figure, {"a": 0.7, "b": 0.8}, point="after_fit")
    drawn = picture(tmp_path)["data"]
    assert [own["name"] for own in drawn] == ["a", "b"]
    assert len(drawn[0]["x"]) == len(drawn[0]["y"]) > 1
    assert "Test accuracy after local training" in page_of(tmp_path).text


def test_traces_are_of_some_clients_or_the_mean_and_of_all_with_a_beginning(tmp_path):
    record(tmp_path, Figure("traces", {"a": "fedobp"}, "share", traces=("part/*",)), {"a": 0.7})
    run = tmp_path / "cells" / "x" / Plan.read(tmp_path / "cells" / "x").final("a")[0].path
    values = [
        (1, 0, "part/x", 1.0),
        (1, 1, "part/x", 3.0),
        (2, 0, "part/x", 5.0),
        (2, 0, "part/y", 7.0),
        (2, 0, "z", 9.0),
    ]
    lines = [dict(zip(TRACES_SCHEMA.names, (0, *own), strict=True)) for own in values]
    pq.write_table(pa.Table.from_pylist(lines, TRACES_SCHEMA), run / "traces.parquet")
    assert {own["name"]: own["y"] for own in picture(tmp_path)["data"]} == {"x": [2.0, 5.0], "y": [7.0]}
    one = ReproductionRecord.read(tmp_path)
    tree = {**one.figure, "clients": [1], "traces": ["part/x"]}
    ReproductionRecord(**{**vars(one), "figure": tree}).write(tmp_path)
    assert {own["name"]: own["y"] for own in picture(tmp_path)["data"]} == {"x, client 1": [3.0]}
    assert 'a x, client 1",last round,3.0,' in (tmp_path / "table.csv").read_text()


def test_nothing_run_yet(tmp_path):
    record(tmp_path, OVER, {"other": 0.7})
    assert page_of(tmp_path).answer == "Nothing of paper/figure-1 has been run yet."


def test_figures_are_asked_for_by_number(capsys):
    words = ["--figure", "6", "--cells", "cifar10", "--seeds", "0", "--print-config"]
    assert main(["fedcac", *words]) == 0
    assert "# cifar10, dirichlet 0.1: fedcac beta=170" in capsys.readouterr().out
    for asked, said in (
        (["fedcac", "--figure", "2"], "--figure 2: not among the figures of fedcac that can be reproduced: 3, 4, 5, 6"),
        (["nobody", "--figure", "2"], "of nobody that can be reproduced: none"),
        (["--figure", "3"], "--figure 3: name the paper first"),
        (["fedcac/main-dirichlet", "--figure", "3"], "--figure 3: name the paper first"),
        (
            ["fedcac", *words, "--method.beta", "3"],
            "--method.beta: fedcac/figure-6 runs the methods of the paper",
        ),
    ):
        assert main(asked) == 2
        assert said in capsys.readouterr().err


def test_the_figures_that_there_are():
    numbers = {
        paper: [int(n.rpartition("-")[2]) for n in figures() if n.startswith(paper)] for paper in ("fedcac", "fedobp")
    }
    assert numbers == {"fedcac": [3, 4, 5, 6], "fedobp": [4, 5, 8, 9, 10, 11, 12]}
    of_no_paper = ["attacks", "privacy"]
    known = [f"fedmosaic/figure-{own}" for own in (*range(1, 11), *of_no_paper)]
    assert [n for n in figures() if n.startswith("fedmosaic")] == known


@pytest.mark.parametrize("names", [("figure-3", "figure-4"), ("figure-5", "figure-6"), ("figure-6", "figure-7")])
def test_figures_that_show_the_same_runs_share_them(names):
    found = []
    for name in names:
        experiment = Experiment.load(f"fedmosaic/{name}")
        compared = experiment.compared_methods(experiment.cells[0], "full")
        found.append([experiment.values(experiment.cells[0], "full"), [method.fixed for method in compared]])
    assert found[0] == found[1]


def test_a_figure_is_run_and_drawn(tmp_path):
    tree = {"partition": {"clients": 3, "train_size": 20, "test_size": 10}, "model": {"name": "mlp", "hidden": 8}}
    config = Config(**tree, train={"epochs": 1}, rounds=2, seeds=[0], out=tmp_path / "out")
    made = reproduce("fedcac/figure-3", config, cells=["cifar10"], sources={"cifar10": "digits"}, trials=1)
    assert made.table["line"].tolist() == ["sensitivity", "random", "reverse"]
    assert made.table["mean"].between(0, 100).all()
    assert [own["x"] for own in picture(made.folder)["data"]] == [[1, 2]] * 3
    assert "momentum, weight decay, augmentation: not said; none" in page_of(made.folder).text
    with pytest.raises(ConfigError, match="no published experiment; did you mean fedcac/figure-3"):
        reproduce("fedcac/figure-33", config)
