"""Scores and costs over rounds, as pages draw them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from fedbench.results.curves import cost_so_far, seed_curve
from fedbench.results.reader import Records
from fedbench.tasks import load
from tests.report.conftest import write_run

ACCURACY = load("classification").primary


def spent(folder: Path, pooled: bool = False) -> pd.DataFrame:
    run = Records(folder)
    return cost_so_far(run, seed_curve(ACCURACY, run.metrics(), "after_agg"), pooled)


def test_a_curve_ends_where_the_most_seeds_end() -> None:
    rows = [(0, 0, 0.9), (0, 1, 0.5), (1, 1, 0.7), (0, 2, 0.6), (1, 2, 0.8), (0, 3, 0.9)]
    frame = pd.DataFrame(rows, columns=["seed", "round", "test_accuracy"]).assign(point="after_agg")
    curve = seed_curve(ACCURACY, frame, "after_agg")
    assert curve["round"].tolist() == [1, 2]
    assert curve[["mean", "min", "max"]].to_numpy().ravel() == pytest.approx([60, 50, 70, 70, 60, 80])
    assert seed_curve(ACCURACY, frame, "after_fit").empty


def test_rounds_that_were_not_evaluated_cost_something_too(tmp_path: Path) -> None:
    whole = spent(write_run(tmp_path / "whole"))
    folder = write_run(tmp_path / "half")
    lines = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if json.loads(line)["round"] % 2 == 0]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    half = spent(folder)
    assert list(half["round"]) == [2, 4, 6]
    assert list(half["sent"]) == pytest.approx(list(whole["sent"][whole["round"] % 2 == 0]))


def test_the_steps_of_the_pooled_model_are_its_own(tmp_path: Path) -> None:
    pooled = spent(write_run(tmp_path / "centralized", "centralized"), pooled=True)
    single = spent(write_run(tmp_path / "local", "local"))
    rows = Records(tmp_path / "centralized").metrics()
    made = rows[(rows["point"] == "after_fit") & (rows["seed"] == 0)]["steps"].cumsum()
    assert list(pooled["steps"]) == list(made)
    assert list(pooled["steps"] / single["steps"]) == [pooled["steps"][0] / single["steps"][0]] * len(made)
    assert single["steps"][0] < pooled["steps"][0]


def test_costs_are_those_of_a_client_that_takes_part_in_some_rounds(tmp_path: Path) -> None:
    whole = spent(write_run(tmp_path / "whole"))
    folder = write_run(tmp_path / "part")
    rows = pd.read_parquet(folder / "clients.parquet")
    rows.assign(participated=rows["client"] % 2 == 0).to_parquet(folder / "clients.parquet")
    part = spent(folder)
    assert part["sent"].iloc[-1] == pytest.approx(whole["sent"].iloc[-1])  # of all clients, the same bytes
