"""The summary: the last round, the best one by validation, and what it cost."""

import json
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.results import files
from fedbench.results.reader import Records
from fedbench.results.schema import CLIENTS_SCHEMA
from fedbench.results.summary import summarise
from fedbench.studies.run import run
from tests.results.lines import clients, line
from tests.runtime.rounds import small


def test_summary_of_last_and_best_round(folder: Path) -> None:
    tests, vals = {0: (0.5, 0.9, 0.7), 1: (0.6, 0.5, 0.8)}, {0: (0.5, 0.6, 0.6), 1: (0.9, 0.2, 0.3)}
    rows = [line(s, r + 1, "after_agg", tests[s][r], vals[s][r]) for s in tests for r in range(3)]
    files.append_lines(folder / "metrics.jsonl", rows)
    found = summarise(Records(folder), ["beware"])["points"]["after_agg"]
    assert found["last"]["test_accuracy"]["values"] == [0.7, 0.8]
    assert found["best_val"]["rounds"] == [2, 1]
    assert found["best_val"]["test_accuracy"]["values"] == [0.9, 0.6]
    assert found["last"]["test_worst_tenth"]["mean"] == pytest.approx(0.375)


def test_summary_has_the_score_over_all_test_samples(folder: Path) -> None:
    files.append_lines(folder / "metrics.jsonl", [line(s, 3, "after_agg", 0.5) for s in (0, 1)])
    rows = [(s, 3, c, "after_agg", "test", "accuracy", c, 10 + 20 * c, True) for s in (0, 1) for c in (0, 1)]
    files.write_parquet_atomically(folder / "clients.parquet", clients(rows), CLIENTS_SCHEMA)
    assert summarise(Records(folder))["points"]["after_agg"]["last"]["test_pooled"]["values"] == [0.75, 0.75]
    (folder / "config.yaml").write_text(Config(rounds=3, evaluate={"accuracy": "batches"}).to_yaml())
    assert "test_pooled" not in summarise(Records(folder))["points"]["after_agg"]["last"]


def test_summary_costs_are_per_participant_and_round(folder: Path) -> None:
    rows = [line(0, r, "after_fit", 0.5, costs=dict(steps=20, bytes_up=100, bytes_down=60)) for r in (1, 2)]
    files.append_lines(folder / "metrics.jsonl", rows)
    took_part = [(0, r, c, "after_fit", "test", "accuracy", 0.5, 10, c < 2) for r in (1, 2) for c in range(4)]
    files.write_parquet_atomically(folder / "clients.parquet", clients(took_part), CLIENTS_SCHEMA)
    seconds = [
        json.dumps({"seed": 0, "exchange": r, "total": t, "cpu": 2 * t}) for r, t in ((1, 9.0), (2, 1.0), (3, 1.2))
    ]
    files.append_lines(folder / "timings.jsonl", seconds)
    found = summarise(Records(folder))
    assert [found[k] for k in ("bytes_up", "bytes_down", "steps", "seconds_per_round")] == [50, 30, 10, 1.2]
    assert found["cpu_seconds_per_round"] == 2.4
    assert found["participation"] == 2 / Config().partition.clients
    (folder / "config.yaml").write_text(Config(rounds=3, partition={"clients": 4}).to_yaml())
    assert summarise(Records(folder))["participation"] == 0.5


def test_a_line_weighs_as_much_as_the_rounds_for_which_it_stands(folder: Path) -> None:
    sent = {3: 100, 6: 200, 9: 300, 10: 1000}
    files.append_lines(
        folder / "metrics.jsonl", [line(0, r, "after_fit", 0.5, costs=dict(bytes_up=sent[r])) for r in sent]
    )
    took_part = [(0, r, c, "after_fit", "test", "accuracy", 0.5, 10, c < (r + 1) // 3) for r in sent for c in range(4)]
    files.write_parquet_atomically(folder / "clients.parquet", clients(took_part), CLIENTS_SCHEMA)
    (folder / "config.yaml").write_text(Config(rounds=10, partition={"clients": 4}).to_yaml())
    found = summarise(Records(folder))
    assert found["bytes_up"] == (3 * 100 + 3 * 200 + 3 * 300 + 1000) / (3 * 1 + 3 * 2 + 3 * 3 + 3)
    assert found["participation"] == (3 * 1 + 3 * 2 + 3 * 3 + 3) / 40
    assert found["bytes_down"] is None
    assert 10 * found["participation"] * found["bytes_up"] == pytest.approx(2800 / 4)


ATTACK = {"name": "sign-flip", "share": 0.4}


@pytest.mark.parametrize(
    "fleet",
    [
        {"attack": ATTACK},
        {"dropout": 0.5},
        {"attack": ATTACK, "dropout": 0.5},
        {"attack": ATTACK, "evaluate": {"clients": 5}},
    ],
)
@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_malicious_clients_and_those_whose_upload_gets_lost_take_part(fleet, participation, tmp_path) -> None:
    result = run(small(out=tmp_path, participation=participation, **fleet), report=False)
    found, lines = result.summary, result.metrics[result.metrics["point"] == "after_fit"]
    model = 4 * (64 * 16 + 16 + 16 * 10 + 10)
    assert (found["bytes_down"], found["participation"]) == (model, participation)
    assert (found["bytes_up"] == model) != ("dropout" in fleet), "what is lost does not count as sent"
    for name in ("bytes_up", "bytes_down", "steps"):
        assert found[name] * participation * len(lines) == pytest.approx(lines[name].sum() / 10)


@pytest.mark.parametrize(
    ("method", "environment", "steps"),
    [
        ("centralized", {"pooled": True}, 20),
        ("own:Pooled", {"pooled": True}, 20),
        ("fedavg", {"pooled": False}, 10),
    ],
)
def test_the_pooled_model_s_steps_count_whole(folder: Path, method: str, environment: dict, steps: float) -> None:
    costs = dict(steps=20, bytes_up=100, bytes_down=60)
    files.append_lines(folder / "metrics.jsonl", [line(0, 1, "after_fit", 0.5, costs=costs)])
    took_part = [(0, 1, c, "after_fit", "test", "accuracy", 0.5, 10, c < 2) for c in range(4)]
    files.write_parquet_atomically(folder / "clients.parquet", clients(took_part), CLIENTS_SCHEMA)
    (folder / "config.yaml").write_text(json.dumps({"method": {"name": method}}))
    (folder / "environment.json").write_text(json.dumps(environment))
    found = summarise(Records(folder))
    assert [found[k] for k in ("bytes_up", "bytes_down", "steps")] == [50, 30, steps]


def test_summary_is_complete_when_every_seed_reached_the_last_round(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    files.append_lines(path, [line(0, 3, "after_agg", 0.5), line(1, 2, "after_agg", 0.5)])
    assert not summarise(Records(folder))["complete"]
    files.append_lines(path, [line(1, 3, "after_agg", 0.5)])
    assert summarise(Records(folder))["complete"]
    path.write_text(path.read_text() + "{")
    assert not summarise(Records(folder))["complete"]


def test_summary_names_failed_clients_once(folder: Path) -> None:
    rows = [line(0, 1, p, 0.5, failed=[(3, "loss is nan")]) for p in ("after_fit", "after_agg")]
    files.append_lines(folder / "metrics.jsonl", rows)
    assert summarise(Records(folder))["failed"] == [[0, 1, 3, "loss is nan"]]


def test_summary_of_a_run_that_has_not_begun_is_json(folder: Path) -> None:
    found = json.loads(json.dumps(summarise(Records(folder)), allow_nan=False))
    assert found["points"] == {}
    assert found["method"] == "fedcac"
    assert not found["complete"]
