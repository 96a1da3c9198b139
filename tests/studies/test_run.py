"""A run of several seeds: each is a run of its own, kept and taken again; the folder is what one run would leave."""

import json
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.runtime.rounds import RECORDS, read, small

SEEDS = [0, 3, 1]


def seeds_below(folder: Path) -> dict[str, Path]:
    return {path.name.rpartition("-")[2]: path for path in (folder / "run").iterdir()}


def test_the_folder_holds_what_its_seeds_left_one_after_the_other(tmp_path):
    result = run(small("fedper", rounds=2, seeds=SEEDS, out=str(tmp_path / "all")), report=False)
    alone = [tmp_path / str(seed) for seed in SEEDS]
    for seed, folder in zip(SEEDS, alone, strict=True):
        run(small("fedper", rounds=2, seeds=[seed], out=str(folder)), report=False)
    whole = Records(tmp_path / "all")
    assert read(tmp_path / "all")["metrics.jsonl"] == b"".join(read(folder)["metrics.jsonl"] for folder in alone)
    for table in (Records.metrics, Records.clients, Records.traces):
        assert table(whole).equals(table(Records(*alone)))
    assert result.summary["seeds"] == SEEDS
    assert result.summary["complete"]
    assert len(result.summary["points"]["after_agg"]["last"]["test_accuracy"]["values"]) == 3
    assert {name: read(path) for name, path in seeds_below(tmp_path / "all").items()} == {
        f"s{seed}": read(folder) for seed, folder in zip(SEEDS, alone, strict=True)
    }


def test_a_seed_that_is_there_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run(small("fedper", rounds=2), report=False).folder
    kept, begun = read(first), []
    result = run(small("fedper", rounds=2, seeds=[0, 1]), watch=lambda e: begun.append(e.get("seed")), report=False)
    assert set(begun) - {None} == {1}
    assert read(first) == kept
    plan = Plan.read(result.folder, [])
    assert [(entry.seed, entry.status) for entry in plan.entries] == [(0, "done"), (1, "done")]
    assert (result.folder / plan.entries[0].path).samefile(first)


class Ended(Exception):
    """The run was ended on purpose."""


def test_it_goes_on_in_the_seed_that_it_was_ended_in(tmp_path):
    asked = dict(seeds=[0, 1, 2], checkpoint={"every": 1})

    def end(event: dict) -> None:
        if (event.get("seed"), event.get("round")) == (1, 3):
            raise Ended

    with pytest.raises(Ended):
        run(small("fedper", out=str(tmp_path / "a"), **asked), watch=end)
    assert {e.seed: e.status for e in Plan.read(tmp_path / "a", []).entries} == {
        0: "missing",
        1: "missing",
        2: "missing",
    }
    begun: list = []
    run(small("fedper", out=str(tmp_path / "a"), **asked), watch=lambda e: begun.append((e["seed"], e["round"])))
    run(small("fedper", out=str(tmp_path / "b"), **asked), report=False)
    assert begun == [(1, 3), (1, 4), *((2, round) for round in range(1, 5))]
    for name in RECORDS:
        assert read(tmp_path / "a")[name] == read(tmp_path / "b")[name]
    assert (tmp_path / "a/report.html").exists()


def test_the_same_warning_is_told_once(tmp_path):
    told: list = []
    asked = small(rounds=1, seeds=[0, 1], partition={"name": "dirichlet", "clients": 10, "train_size": 3})
    result = run(asked.model_copy(update={"out": tmp_path}), watch=told.append, report=False)
    warnings = [event["warning"] for event in told if "warning" in event]
    assert len(warnings) == len(set(warnings)) > 0
    assert result.summary["warnings"] == warnings


def test_a_refused_run_of_several_seeds_leaves_nothing(tmp_path):
    asked = small(seeds=[0, 1], out=str(tmp_path / "a/b"), partition={"name": "iid", "clients": 2000})
    with pytest.raises(ConfigError):
        run(asked)
    assert not (tmp_path / "a").exists()


def test_a_regression_needs_nothing_but_its_data(tmp_path):
    """Driver, records, tables and page know the metrics of no task."""
    asked = small("fedprox", data="diabetes", partition={"name": "iid", "clients": 4}, seeds=[0, 1], out=str(tmp_path))
    result = run(asked)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert list(lines[0])[3:9] == ["val_mse", "test_mse", "val_mae", "test_mae", "val_r2", "test_r2"]
    assert lines[-1]["test_worst_tenth"] >= lines[-1]["test_mse"] > 0
    assert set(result.clients) >= {"val_mse", "test_mse", "test_mae", "test_r2"}
    assert result.summary["metric"] == "mse"
    best = result.metrics.query("point == 'after_agg' and seed == 0")["val_mse"].argmin() + 1
    assert result.summary["points"]["after_agg"]["best_val"]["rounds"][0] == best
    page = result.report.read_text()
    assert "fedprox reached a mean squared error of" in page
    assert "accuracy" not in page.partition("<footer")[0].replace("evaluate.accuracy", "").partition("<script")[0]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            dict(partition={"name": "dirichlet", "clients": 4}),
            "it deals by class, and the targets of data diabetes are",
        ),
        (dict(partition={"name": "iid", "clients": 4, "flip_clients": [0]}), "are no classes; leave it empty"),
        (dict(partition="iid", data={"name": "diabetes", "augment": ["flip"]}), "diabetes holds no images"),
        (dict(partition="iid", model="avgcnn"), "model avgcnn: it is for images, and the data have samples of (10,)"),
    ],
)
def test_what_needs_classes_or_images_is_refused_without_them(more, told, tmp_path):
    with pytest.raises(ConfigError) as error:
        run(Config(**{"data": "diabetes", "out": tmp_path / "out", "resources": {"hosts": 0}, **more}))
    assert told in str(error.value)
    assert not (tmp_path / "out").exists()
