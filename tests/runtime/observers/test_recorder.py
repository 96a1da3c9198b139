"""Records: what is written is what the clients scored."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbench.errors import ConfigError
from fedbench.results import files
from fedbench.results.reader import Records
from fedbench.results.schema import as_json
from fedbench.runtime.observers.recorder import Recorder
from fedbench.tasks import load
from tests.runtime.rounds import largest_file

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


def written(folder) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("metrics.jsonl", "clients.parquet", "traces.parquet")]


def more(recorder: Recorder, round: int) -> None:
    recorder.add_clients(0, round, "after_agg", SCORES, took_part=set())
    recorder.add_traces(0, round, {(-1, f"new {round}"): 1.0})
    recorder.write_lines([recorder.line(0, round, "after_agg", SCORES)])


def test_going_back_gives_the_same_files(tmp_path):
    recorder = filled(tmp_path)
    recorder.keep()
    state = recorder.state()
    recorder.write_tables()
    before = written(tmp_path)
    more(recorder, 2)
    recorder.keep()
    recorder.write_tables()
    again = Recorder(tmp_path, TASK)
    again.restore(state)
    assert len(Records(tmp_path).clients()) == 10, "the run is under way"
    again.write_tables()
    assert written(tmp_path) == before
    assert again.warnings == ["a line"]


@pytest.mark.parametrize("group", [7, 1 << 20])
def test_how_often_rows_were_kept_leaves_no_trace(tmp_path, monkeypatch, group):
    """group: rows of a row group, which pieces do not respect."""
    monkeypatch.setattr(files, "GROUP", group)
    for name, kept in (("often", (2, 3, 4)), ("once", (3,)), ("never", ())):
        (tmp_path / name).mkdir()
        recorder = filled(tmp_path / name)
        for round in (2, 3, 4):
            more(recorder, round)
            if round in kept:
                recorder.keep()
                assert not len(recorder.clients)
        recorder.write_tables()
        assert len(Records(tmp_path / name).clients()) == 40
    assert written(tmp_path / "often") == written(tmp_path / "once") == written(tmp_path / "never")


def test_no_row_is_written_with_two_checkpoints(tmp_path):
    recorder = filled(tmp_path)
    recorder.keep()
    first = {path: path.stat() for path in (tmp_path / files.PIECES).iterdir()}
    more(recorder, 2)
    recorder.keep()
    assert {path: path.stat() for path in first} == first
    assert len(list((tmp_path / files.PIECES).iterdir())) == 2 * len(first)


def test_lines_wait_for_the_disk_with_a_checkpoint_and_at_the_end_but_not_in_a_round(tmp_path, monkeypatch):
    waits: list[str] = []
    monkeypatch.setattr(files, "flush", lambda path: waits.append(path.name))
    recorder = filled(tmp_path)
    assert waits == []
    recorder.keep()
    recorder.write_tables()
    assert waits == ["metrics.jsonl", "metrics.jsonl"]


def test_rows_that_found_no_room_are_kept_the_next_time(tmp_path):
    recorder = filled(tmp_path)
    with largest_file(100), pytest.raises(OSError):
        recorder.keep()
    assert recorder.state()["kept"] == 0
    recorder.keep()
    assert len(Records(tmp_path).clients()) == 10


@pytest.mark.parametrize("damage", [None, b"", b"no table", "cut"])
def test_rows_that_a_checkpoint_knows_and_that_are_gone_are_said(damage, tmp_path):
    recorder = filled(tmp_path)
    recorder.keep()
    state, piece = recorder.state(), tmp_path / files.PIECES / "clients-000001.parquet"
    whole = piece.read_bytes()
    piece.unlink()
    if damage is not None:
        piece.write_bytes(whole[:-20] if damage == "cut" else damage)
    with pytest.raises(ConfigError, match=f"{piece}: (missing|cut|changed).* delete {tmp_path} to run it again"):
        Recorder(tmp_path, TASK).restore(state)
    del state["files"]
    with pytest.raises(ConfigError, match=f"{piece}: missing or damaged, .* delete {tmp_path} to run it again"):
        Recorder(tmp_path, TASK).restore(state)


def test_rows_of_a_checkpoint_that_did_not_come_about_count_once(tmp_path, monkeypatch):
    """There is room for the first table and none for the second."""
    recorder, write = filled(tmp_path), files.write_tables_atomically

    def full(path: Path, *rest: Any) -> None:
        if path.name.startswith("traces"):
            raise OSError(28, "No space left on device")
        write(path, *rest)

    monkeypatch.setattr(files, "write_tables_atomically", full)
    with pytest.raises(OSError):
        recorder.keep()
    monkeypatch.undo()
    recorder.write_tables()
    assert len(Records(tmp_path).clients()) == 10


def test_seconds_of_rounds_done_twice_count_once(tmp_path):
    recorder = filled(tmp_path)
    state = recorder.state()
    recorder.write_timing({"seed": 0, "exchange": 1, "total": 1.0})
    recorder.restore(state)
    recorder.write_timing({"seed": 0, "exchange": 1, "total": 2.0})
    assert list(Records(tmp_path).timings()["total"]) == [2.0]


def test_a_new_start_forgets_the_lines_of_an_attempt_without_a_checkpoint(tmp_path):
    before = filled(tmp_path)
    before.keep()
    before.write_tables()
    Recorder(tmp_path, TASK).start()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_lines_that_a_checkpoint_knows_and_that_are_gone_are_said(tmp_path):
    state = filled(tmp_path).state()
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl: cut from \d+ to 0 bytes, and the checkpoint needs it"):
        Recorder(tmp_path, TASK).restore(state)
    del state["files"]
    with pytest.raises(ConfigError, match=r"metrics\.jsonl: missing or cut"):
        Recorder(tmp_path, TASK).restore(state)
