"""What is written comes back, and what was half-written never counts as whole."""

import json
import math
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results import records
from fedbench.results.records import CLIENTS_SCHEMA, TRACES_SCHEMA, GridFolder, MetricsLine, RunFolder

KEYS = ["seed", "round", "point", "val_accuracy", "test_accuracy", "val_loss", "test_loss", "test_worst_tenth"]
KEYS += ["test_spread", "clients", "train_loss", "steps", "bytes_up", "bytes_down", "failed"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(Config(method="fedcac", rounds=3, seeds=[0, 1]).to_yaml())
    return tmp_path


def line(seed: int, number: int, point: str, test: float, val: float | None = None, **more) -> str:
    return MetricsLine(seed, number, point, val, test, test_worst_tenth=test / 2, clients=2, **more).to_json()


def clients(rows: list[tuple]) -> dict[str, list]:
    return dict(zip(CLIENTS_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))


def test_a_metrics_line_has_the_keys_of_the_schema_in_order() -> None:
    assert list(json.loads(MetricsLine(0, 1, "after_fit").to_json())) == KEYS


def test_floats_survive_to_the_last_bit() -> None:
    value = 0.1 + 0.2
    assert json.loads(line(0, 1, "global", value))["test_accuracy"] == value


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_becomes_null(value: float) -> None:
    assert json.loads(MetricsLine(0, 1, "after_fit", train_loss=value).to_json())["train_loss"] is None


def test_a_half_written_last_line_is_ignored(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text(line(0, 1, "after_agg", 0.5) + "\n" + line(0, 2, "after_agg", 0.6)[:-9])
    run = RunFolder(folder)
    assert run.metrics()["round"].tolist() == [1]
    assert run.problems == []


def test_appending_after_a_kill_cuts_the_half_line_off(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    path.write_text(line(0, 1, "after_agg", 0.5) + '\n{"seed": 0, "rou')
    records.append_lines(path, [line(0, 2, "after_agg", 0.6)])
    assert [json.loads(text)["round"] for text in path.read_text().splitlines()] == [1, 2]


def test_a_damaged_line_inside_is_named(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("nonsense\n" + line(0, 2, "after_agg", 0.6) + "\n")
    run = RunFolder(folder)
    assert run.metrics()["round"].tolist() == [2]
    assert run.problems == ["metrics.jsonl: line 1 cannot be read and is left out"]


def test_of_doubled_rows_the_last_counts(folder: Path) -> None:
    records.append_lines(folder / "metrics.jsonl", [line(0, 1, "after_agg", v) for v in (0.5, 0.7)])
    assert RunFolder(folder).metrics()["test_accuracy"].tolist() == [0.7]


def test_rows_come_in_the_order_seed_round_point(folder: Path) -> None:
    asked = [(1, 1, "after_agg"), (0, 1, "global"), (0, 1, "after_agg"), (0, 1, "after_fit")]
    records.append_lines(folder / "metrics.jsonl", [line(*key, 0.5) for key in asked])
    found = RunFolder(folder).metrics()[["seed", "round", "point"]].itertuples(index=False, name=None)
    assert list(found) == asked[::-1]


def test_parquet_comes_back_without_doubled_rows(folder: Path) -> None:
    rows = [(0, 1, c, "after_agg", None, v, None, 0.1, 0, 10, True) for c, v in ((1, 0.2), (0, 0.4), (0, 0.5))]
    records.write_parquet_atomically(folder / "clients.parquet", clients(rows), CLIENTS_SCHEMA)
    frame = RunFolder(folder).clients()
    assert frame[["client", "test_accuracy"]].to_numpy().tolist() == [[0, 0.5], [1, 0.2]]
    assert frame["val_accuracy"].isna().all()


def test_missing_files_give_empty_frames_with_their_columns(folder: Path) -> None:
    run = RunFolder(folder)
    assert list(run.clients()) == CLIENTS_SCHEMA.names
    assert list(run.traces()) == TRACES_SCHEMA.names
    assert list(run.metrics()) == KEYS
    assert run.timings().empty
    assert run.summary() == run.partition() == run.environment() == {}


@pytest.mark.parametrize("name", ["clients.parquet", "summary.json", "partition.json", "environment.json"])
def test_a_damaged_file_is_left_out_and_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b'{"PAR1')
    run = RunFolder(folder)
    assert len(getattr(run, name.split(".")[0])()) == 0
    assert run.problems[0].startswith(f"{name} cannot be read and is left out")


def test_writing_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.mkdir()
    with pytest.raises(OSError):
        records.write_atomically(path, "text")
    assert list(tmp_path.iterdir()) == [path]


def test_columns_that_miss_a_field_of_the_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="round"):
        records.write_parquet_atomically(tmp_path / "clients.parquet", {"seed": [0]}, CLIENTS_SCHEMA)


def test_writing_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    records.write_atomically(path, "a long first text")
    records.write_atomically(path, "short")
    assert path.read_text() == "short"
    assert list(tmp_path.iterdir()) == [path]


def test_summary_of_last_and_best_round(folder: Path) -> None:
    tests, vals = {0: (0.5, 0.9, 0.7), 1: (0.6, 0.5, 0.8)}, {0: (0.5, 0.6, 0.6), 1: (0.9, 0.2, 0.3)}
    rows = [line(s, r + 1, "after_agg", tests[s][r], vals[s][r]) for s in tests for r in range(3)]
    records.append_lines(folder / "metrics.jsonl", rows)
    found = records.summarise(RunFolder(folder), ["beware"])["points"]["after_agg"]
    assert found["last"]["test_accuracy"]["values"] == [0.7, 0.8]
    assert found["best_val"]["rounds"] == [2, 1]
    assert found["best_val"]["test_accuracy"]["values"] == [0.9, 0.6]
    assert found["last"]["test_worst_tenth"]["mean"] == pytest.approx(0.375)


def test_summary_costs_are_per_participant_and_round(folder: Path) -> None:
    rows = [line(0, r, "after_fit", 0.5, steps=20, bytes_up=100, bytes_down=60) for r in (1, 2)]
    records.append_lines(folder / "metrics.jsonl", rows)
    took_part = [(0, r, c, "after_fit", None, 0.5, None, 0.1, 0, 10, c < 2) for r in (1, 2) for c in range(4)]
    records.write_parquet_atomically(folder / "clients.parquet", clients(took_part), CLIENTS_SCHEMA)
    seconds = [json.dumps({"seed": 0, "round": r, "total": t}) for r, t in ((1, 9.0), (2, 1.0), (3, 1.2))]
    records.append_lines(folder / "timings.jsonl", seconds)
    found = records.summarise(RunFolder(folder))
    assert [found[k] for k in ("bytes_up", "bytes_down", "steps", "seconds_per_round")] == [50, 30, 10, 1.2]


def test_summary_is_complete_when_every_seed_reached_the_last_round(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    records.append_lines(path, [line(0, 3, "after_agg", 0.5), line(1, 2, "after_agg", 0.5)])
    assert not records.summarise(RunFolder(folder))["complete"]
    records.append_lines(path, [line(1, 3, "after_agg", 0.5)])
    assert records.summarise(RunFolder(folder))["complete"]
    path.write_text(path.read_text() + "{")
    assert not records.summarise(RunFolder(folder))["complete"]


def test_summary_names_failed_clients_once(folder: Path) -> None:
    rows = [line(0, 1, p, 0.5, failed=[(3, "loss is nan")]) for p in ("after_fit", "after_agg")]
    records.append_lines(folder / "metrics.jsonl", rows)
    assert records.summarise(RunFolder(folder))["failed"] == [[0, 1, 3, "loss is nan"]]


def test_summary_of_a_run_that_has_not_begun_is_json(folder: Path) -> None:
    found = json.loads(json.dumps(records.summarise(RunFolder(folder)), allow_nan=False))
    assert found["points"] == {}
    assert found["method"] == "fedcac"
    assert not found["complete"]


def test_a_folder_without_a_run_or_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run here"):
        RunFolder(tmp_path)
    with pytest.raises(ConfigError, match="no grid here"):
        GridFolder(tmp_path)


def test_a_grid_reads_its_cells_and_final_runs(tmp_path: Path) -> None:
    done = {"name": "a", "values": {"method.tau": 0.1}, "status": "done", "val_accuracy": 0.5, "path": "cells/a"}
    gone = {"name": "b", "values": {"method.tau": 0.2}, "status": "failed", "error": "out of memory", "path": "cells/b"}
    final = {"local": "final/local", "fedcac": "final/fedcac", "centralized": "final/centralized"}
    content = {
        "method": "fedcac",
        "space": {"method.tau": [0.1, 0.2]},
        "cells": [done, gone],
        "best": "a",
        "final": final,
    }
    records.write_json_atomically(tmp_path / "grid.json", content)
    for method in ("local", "fedcac"):
        (tmp_path / "final" / method).mkdir(parents=True)
        (tmp_path / "final" / method / "metrics.jsonl").touch()
    grid = GridFolder(tmp_path)
    assert grid.cells()["method.tau"].tolist() == [0.1, 0.2]
    assert grid.cells()["status"].tolist() == ["done", "failed"]
    assert grid.best() == done
    assert list(grid.final()) == ["fedcac", "local"]
