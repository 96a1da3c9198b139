"""Records: what is written is what the clients scored."""

import json

import numpy as np
import pytest

from fedbench.results.reader import Records
from fedbench.results.schema import as_json
from fedbench.runtime.recorder import Recorder
from fedbench.tasks import load

TASK = load("classification")


def score(accuracy: float, loss: float, count: int) -> dict:
    return {"accuracy": (accuracy * count, count), "loss": (loss * count, count)}


SCORES = {
    client: {"val": score(client / 20, 1.0 + client, 4), "test": score(client / 10, 2.0 + client, 8)}
    for client in range(10)
}


def test_a_line_is_the_plain_mean_over_clients(tmp_path):
    line = json.loads(as_json(Recorder(tmp_path, TASK).line(0, 3, "after_agg", SCORES)))
    accuracies = np.arange(10) / 10
    assert line["val_accuracy"] == pytest.approx(0.225)
    assert line["test_accuracy"] == pytest.approx(accuracies.mean())
    assert line["test_loss"] == pytest.approx(6.5)
    assert line["test_worst_tenth"] == 0.0
    assert line["test_spread"] == pytest.approx(accuracies.std())
    assert line["clients"] == 10
    assert line["steps"] is line["bytes_up"] is line["train_loss"] is None


def test_clients_without_a_split_are_left_out_of_its_mean(tmp_path):
    scores = {0: {"test": score(0.5, 1.0, 4)}, 1: {"val": score(0.25, 2.0, 4), "test": score(1.0, 3.0, 4)}}
    line = json.loads(as_json(Recorder(tmp_path, TASK).line(0, 1, "after_fit", scores)))
    assert line["val_accuracy"] == 0.25
    assert line["test_accuracy"] == 0.75
    nobody = json.loads(as_json(Recorder(tmp_path, TASK).line(0, 1, "after_fit", {0: {"test": score(0.5, 1.0, 4)}})))
    assert nobody["val_accuracy"] is None


def filled(folder) -> Recorder:
    recorder = Recorder(folder, TASK)
    recorder.add_clients(0, 1, "after_fit", SCORES, took_part={1, 2})
    recorder.add_traces(0, 1, {(-1, "margin"): 0.25, (3, "lambda"): float("nan"), (3, "agreement"): 1.0})
    recorder.write_lines([recorder.line(0, 1, "after_fit", SCORES)])
    recorder.warnings.append("a line")
    return recorder


def test_tables_hold_every_row(tmp_path):
    filled(tmp_path).write_tables()
    rows = Records(tmp_path).clients()
    assert list(rows["client"]) == list(range(10))
    assert list(rows.query("participated")["client"]) == [1, 2]
    assert list(rows["test_accuracy"]) == [client / 10 for client in range(10)]
    traces = Records(tmp_path).traces()
    assert set(zip(traces["client"], traces["name"], strict=True)) == {(-1, "margin"), (3, "lambda"), (3, "agreement")}


def test_going_back_gives_the_same_files(tmp_path):
    recorder = filled(tmp_path)
    recorder.write_tables()
    names = ("metrics.jsonl", "clients.parquet", "traces.parquet")
    before, state = [(tmp_path / name).read_bytes() for name in names], recorder.state()
    recorder.add_clients(0, 2, "after_agg", SCORES, took_part=set())
    recorder.write_lines([recorder.line(0, 2, "after_agg", SCORES)])
    recorder.write_tables()
    again = Recorder(tmp_path, TASK)
    again.restore(state)
    again.write_tables()
    assert [(tmp_path / name).read_bytes() for name in names] == before
    assert again.warnings == ["a line"]


def test_seconds_of_rounds_done_twice_count_once(tmp_path):
    recorder = filled(tmp_path)
    state = recorder.state()
    recorder.write_timing({"seed": 0, "exchange": 1, "total": 1.0})
    recorder.restore(state)
    recorder.write_timing({"seed": 0, "exchange": 1, "total": 2.0})
    assert list(Records(tmp_path).timings()["total"]) == [2.0]


def test_a_new_start_forgets_the_lines_of_an_attempt_without_a_checkpoint(tmp_path):
    filled(tmp_path).start()
    assert not (tmp_path / "metrics.jsonl").exists()
