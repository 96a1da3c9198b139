"""A published experiment made again on other data, small enough to wait for, and what the experiments would cost."""

from itertools import islice

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.processor import cores
from fedbench.studies.cost import Cost, steps_of
from fedbench_papers.tables.experiment import Experiment, figures, names
from fedbench_papers.tables.reproduce import experiments_listing, plan_table, reproduce, runs_of_cells, slug

SMALL = {
    "partition": {"clients": 3, "train_size": 20, "test_size": 10},
    "model": {"name": "mlp", "hidden": 8},
    "train": {"epochs": 1},
    "rounds": 2,
    "seeds": [0],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Table 4 of FedCAC, its CIFAR-10 column, on the digits."""
    config = Config(**SMALL, out=tmp_path_factory.mktemp("published") / "out")
    return reproduce("fedcac/mask-methods", config, cells=["cifar10"], sources={"cifar10": "digits"}, trials=1)


def test_ours_stands_beside_the_papers_numbers(made):
    table = made.table.set_index("method")
    assert table["published"].to_dict() == {"pfedgate": 89.15, "perfedmask": 89.2, "fedcac": 89.77}
    assert table["ours"].between(0, 100).all()
    assert "89.77" in str(made)
    assert table.loc["fedcac", "difference"] == pytest.approx(table.loc["fedcac", "ours"] - 89.77)
    assert set(table["scored_by"]) == {"best round on test"}


def test_the_page_says_what_differs_from_the_paper_and_what_it_leaves_open(made):
    text = made.report.read_text()
    assert "partition.clients = 3" in text
    assert "tau: 0.5" in text
    assert "3 numbers of fedcac/mask-methods reproduced" in text


def test_another_evaluation_point_is_recorded_shown_and_needs_no_run(made):
    before = made.table["ours"].tolist(), {path: path.stat().st_mtime_ns for path in made.folder.rglob("metrics.jsonl")}
    asked = {"cells": ["cifar10"], "sources": {"cifar10": "digits"}, "trials": 1}
    fit = reproduce("fedcac/mask-methods", Config(**SMALL, out=made.folder), **asked, point="after_fit")
    assert {path: path.stat().st_mtime_ns for path in made.folder.rglob("metrics.jsonl")} == before[1]
    assert set(fit.table["point"]) == {"after_fit"}
    assert fit.table["ours"].tolist() != before[0]
    assert "point = after_fit" in fit.report.read_text()
    back = reproduce("fedcac/mask-methods", Config(**SMALL, out=made.folder), **asked)
    assert (back.table["ours"].tolist(), set(back.table["point"])) == (before[0], {"after_agg"})


def test_given_again_nothing_is_run_and_other_cells_stay(made):
    before = {path: path.stat().st_mtime_ns for path in made.folder.rglob("metrics.jsonl")}
    config, sources = Config(**SMALL, out=made.folder), {"cifar100": "digits"}
    again = reproduce("fedcac/mask-methods", config, cells=["cifar100"], sources=sources, trials=1)
    assert set(again.table["cell"]) == {"cifar10, pathological 2 classes", "cifar100, pathological 2 classes"}
    after = {path: path.stat().st_mtime_ns for path in made.folder.rglob("metrics.jsonl")}
    assert before.items() <= after.items()


def test_only_the_methods_asked_for_are_run_and_shown(tmp_path):
    config, asked = Config(**SMALL, out=tmp_path), {"sources": {"cifar10": "digits"}, "trials": 1}
    one = reproduce("fedcac/mask-methods", config, cells=["cifar10"], methods=["fedcac"], **asked)
    assert one.table["method"].tolist() == ["fedcac"]
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 1
    assert "Only fedcac asked for in cifar10, pathological 2 classes." in one.report.read_text()
    both = reproduce("fedcac/mask-methods", config, cells=["cifar10"], methods=["fedcac", "pfedgate"], **asked)
    assert both.table["method"].tolist() == ["pfedgate", "fedcac"]
    assert both.table.set_index("method")["ours"]["fedcac"] == one.table["ours"][0]
    lines = reproduce(
        "fedcac/figure-3", Config(**SMALL, out=tmp_path / "b"), cells=["cifar10"], methods=["random"], **asked
    )
    assert lines.table["line"].tolist() == ["random"]


def test_cells_of_single_clients_have_the_same_runs(tmp_path):
    experiment = Experiment.load("fedmosaic/feature-shift")
    first, second, *_ = experiment.cells
    labels = experiment.select_methods([], [first], "full")
    studies = [
        plan_table(experiment, c, Config(out=tmp_path), "full", {}, "after_agg", labels) for c in (first, second)
    ]
    assert studies[0].folder == studies[1].folder == tmp_path / "cells" / "office-caltech10"
    assert [c.client for c in (first, second)] == [0, 1]
    assert slug(Experiment.load("co-pfl/main").cells[0]) == "cifar10--clients=10-s=2-m-bound=50"


@pytest.mark.parametrize(
    ("name", "more", "line"),
    [
        ("fedcac/mask-methods", {"point": "agg"}, "--point agg: must be after_agg or after_fit"),
        ("fedcac/mask-methods", {"scale": "tiny"}, "--scale tiny: must be full or small"),
        ("fedobp/settings", {}, "fedobp/settings: nothing is run for it: quantiles .*`fedbench reproduce fedobp/main`"),
        ("fedobp/score-quantile", {}, "nothing is run for it: best quantiles .*`fedbench claims --only O1,O2`"),
        ("fedcac/mask-methods", {"cells": ["svhn"]}, "--cells svhn: no cell"),
        ("fedcac/mask-methods", {"methods": ["fedavg"]}, "--methods fedavg: .* it has pfedgate, perfedmask, fedcac"),
        ("co-pfl/main", {"cells": ["cifar10"], "sources": {"cifar10": "parquet:/nowhere"}}, "/nowhere"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(tmp_path, name, more, line):
    with pytest.raises(ConfigError, match=line):
        reproduce(name, Config(out=tmp_path / "out"), **more)
    assert not (tmp_path / "out").exists()


def test_every_experiment_is_listed_with_what_it_is(monkeypatch):
    monkeypatch.setattr(Cost, "seconds", 3600.0 * cores())  # an hour each
    lines = list(experiments_listing("full"))
    listed = [line.split()[0] for line in lines[1:-1] if not line.startswith(" ")]
    assert listed == [*names(), *figures()]
    assert sum("no runs" in line for line in lines) == 5
    named = [line.split()[0] for line in lines if "no training" in line and not line.startswith(" ")]
    assert named == ["fedmosaic/figure-2", "fedmosaic/figure-10"]
    assert lines[1].split()[1:6] == ["4", "32", "196", "12,354,000", "196.0"]
    assert "two classes a client" in lines[2]


def test_a_line_is_there_before_the_next_one_is_measured(monkeypatch):
    measured = []
    cost = lambda configs: measured.append(1) or (1, 1.0)  # noqa: E731
    monkeypatch.setattr("fedbench_papers.tables.reproduce.total_cost", cost)
    assert len(list(islice(experiments_listing("full"), 2))) == 2
    assert len(measured) == 1


def test_runs_are_points_on_tuning_seeds_and_finals_on_the_others():
    runs = list(runs_of_cells(Experiment.load("co-pfl/main"), "full"))
    # Four cells of eight methods: three rates each, co-pfl two rates by two shares; then three seeds.
    assert len(runs) == 4 * (7 * (3 + 3) + 4 + 3)


def test_cells_that_share_runs_count_once():
    assert len(list(runs_of_cells(Experiment.load("fedmosaic/feature-shift"), "full"))) == 2 * 13 * 3


def test_steps_are_those_of_the_protocol():
    runs = list(runs_of_cells(Experiment.load("fedcac/main-pathological"), "full"))
    made = {config.method.name: steps_of(config) for config in runs}
    assert made.pop("fedrep") == 500 * 40 * (10 + 1) * 5  # epochs of its own
    assert set(made.values()) == {500 * 40 * 25}
