"""Loggers mirror the records: the same curves, each round once, and never at the cost of the run."""

import csv
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.loggers import (
    catch_up,
    log_records,
    make_loggers,
    metric_values,
    trace_distributions,
    trace_values,
)
from fedbench.results.schema import metrics_line
from fedbench.tasks import load


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))


def lines(round_, seed=0, accuracy=0.5):
    return [
        line(seed, round_, "after_fit", accuracy + 0.1, costs=dict(train_loss=1.0, steps=5, bytes_up=8)),
        line(seed, round_, "after_agg", accuracy, failed=[(3, "loss is not finite")]),
    ]


def line(seed, round_, point, accuracy, **more):
    return metrics_line(load("classification"), seed, round_, point, {"test_accuracy": accuracy}, **more)


def traces(round_, seed=0, clients=3, name="lambda"):
    return [
        {"seed": seed, "round": round_, "client": c, "name": name, "value": round_ + c / 1000} for c in range(clients)
    ]


def attach(folder, *names, resume=True, warn=pytest.fail, **wandb):
    config = Config(loggers=list(names), wandb=wandb)
    return make_loggers(config, folder, "0123456789ab", "train", resume=resume, warn=warn)


def wandb_records(path: Path):
    """The records of a .wandb file, read as `wandb sync` does: a LevelDB log of protobuf messages."""
    data, position, message = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, length, part = struct.unpack_from("<IHB", data, position)
        message += data[position + 7 : position + 7 + length]
        position += 7 + length
        if part in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(message)
            message = b""


def wandb_history(folder: Path):
    """What all offline segments of a run hold: one dictionary per logged round, in order."""
    wandb.teardown()  # finish() may return before W&B's own process has closed the file
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        histories = [r.history for r in wandb_records(path) if r.WhichOneof("record_type") == "history"]
        rows += [{"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in h.item} for h in histories]
    return rows


def test_lines_become_one_key_per_point_and_metric():
    values = metric_values(lines(1))
    assert values["after_fit/test_accuracy"] == 0.6
    assert values["after_agg/test_accuracy"] == 0.5
    assert values["after_agg/failed"] == 1
    assert "after_agg/val_accuracy" not in values


def test_few_clients_become_curves_and_many_become_quantiles():
    assert list(trace_values(traces(1, clients=2))) == ["lambda/client_00", "lambda/client_01"]
    many = trace_values(traces(1, clients=60))
    assert list(many) == ["lambda/min", "lambda/p10", "lambda/median", "lambda/p90", "lambda/max"]
    assert many["lambda/median"] == pytest.approx(1.0295)
    assert trace_distributions(traces(1, clients=60))["lambda/histogram"].shape == (60,)
    assert trace_distributions(traces(1, clients=2)) == {}


def test_named_parts_are_means_over_clients_and_a_server_trace_stays():
    assert trace_values(traces(1, clients=3, name="critical_share/fc")) == {"critical_share/fc": pytest.approx(1.001)}
    assert trace_values([{"seed": 0, "round": 1, "client": -1, "name": "margin", "value": 0.2}]) == {"margin": 0.2}


def test_wandb_offline_file_holds_both_points_the_lambdas_and_the_mask(tmp_path):
    loggers = attach(tmp_path, "wandb", group="grid-1", tags=["paper"])
    loggers[0].log_hyperparams({"method": {"name": "fedcac"}})
    for round_ in (1, 2):
        log_records(
            loggers, lines(round_, accuracy=round_ / 10), traces(round_) + traces(round_, name="critical_share")
        )
    loggers[0].finalize()
    rows = wandb_history(tmp_path)
    assert [row["round"] for row in rows] == [1, 2]
    assert [row["after_agg/test_accuracy"] for row in rows] == [0.1, 0.2]
    assert [row["after_fit/test_accuracy"] for row in rows] == pytest.approx([0.2, 0.3])
    assert [row["lambda/client_02"] for row in rows] == [1.002, 2.002]
    assert rows[0]["critical_share/client_01"] == 1.001


def test_wandb_run_is_named_grouped_and_stepped_by_round(tmp_path):
    folder = tmp_path
    loggers = attach(folder, "wandb", group="grid-1", tags=["paper"])
    loggers[0].finalize()
    wandb.teardown()
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    records = list(wandb_records(path))
    run = next(r.run for r in records if r.WhichOneof("record_type") == "run")
    assert run.run_id.startswith("0123456789ab-")
    assert (run.run_group, run.job_type) == ("grid-1", "train")
    assert list(run.tags) == ["paper"]
    assert {r.metric.name or r.metric.glob_name for r in records if r.WhichOneof("record_type") == "metric"} >= {
        "round"
    }


@pytest.mark.parametrize("name", ["wandb", "csv"])
def test_a_resumed_run_has_every_round_once(tmp_path, name):
    for rounds in (range(1, 6), range(3, 8)):  # the second start goes back to the checkpoint after round 2
        loggers = attach(tmp_path, name)
        for round_ in rounds:
            log_records(loggers, lines(round_))
        loggers[0].finalize()
    assert logged_rounds(tmp_path, name) == list(range(1, 8))


@pytest.mark.parametrize("name", ["wandb", "csv"])
def test_rounds_that_a_killed_logger_never_wrote_are_filled_from_the_records(tmp_path, name):
    script = f"""
import os, pathlib, signal
from tests.results.test_loggers import attach, lines
from fedbench.results.loggers import log_records
from fedbench.results.files import append_lines
from fedbench.results.schema import as_json
folder = pathlib.Path({str(tmp_path)!r})
loggers = attach(folder, {name!r})
for round_ in range(1, 6):
    append_lines(folder / "metrics.jsonl", map(as_json, lines(round_)))
    log_records(loggers, lines(round_))
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).parents[2]
    fresh = {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"}  # else it shares this process's W&B service
    assert subprocess.run([sys.executable, "-c", script], cwd=root, env=fresh).returncode == -signal.SIGKILL
    loggers = attach(tmp_path, name)
    catch_up(loggers, tmp_path)
    for round_ in (4, 5, 6):
        log_records(loggers, lines(round_))
    loggers[0].finalize()
    assert logged_rounds(tmp_path, name) == [1, 2, 3, 4, 5, 6]


def test_records_handed_over_again_from_the_start_only_fill_the_gap(tmp_path):
    log_records(attach(tmp_path, "csv"), lines(1))
    log_records(attach(tmp_path, "csv"), [line for round_ in (1, 2, 3) for line in lines(round_)])
    assert logged_rounds(tmp_path, "csv") == [1, 2, 3]


def logged_rounds(folder, name):
    if name == "wandb":
        return [row["round"] for row in wandb_history(folder)]
    return [int(row["step"]) for row in csv_rows(folder)]


def csv_rows(folder):
    return [row for path in sorted(folder.glob("csv/*/metrics.csv")) for row in csv.DictReader(path.open())]


def test_traces_of_a_round_are_columns_by_client_and_name(tmp_path):
    loggers = attach(tmp_path, "csv")
    log_records(loggers, lines(1), traces(1))
    assert csv_rows(tmp_path)[0]["lambda/client_02"] == "1.002"


def test_tensorboard_writes_event_files(tmp_path):
    loggers = attach(tmp_path, "tensorboard")
    log_records(loggers, lines(1), traces(1))
    loggers[0].finalize()
    assert list(tmp_path.glob("tensorboard/*/events.*"))


class Failing:
    """A logger that raises at every call."""

    def __init__(self, save_dir):
        self.save_dir = save_dir

    def log_metrics(self, metrics, step):
        raise OSError("disk full")


def test_a_failing_logger_is_one_warning_and_not_the_end(tmp_path):
    said = []
    loggers = attach(tmp_path, f"{__name__}:Failing", "csv", warn=said.append)
    for round_ in (1, 2):
        log_records(loggers, lines(round_))
    assert len(said) == 1
    assert "Failing failed and is left out" in said[0]
    assert [row["step"] for row in csv_rows(tmp_path)] == ["1", "2"]


def test_an_own_logger_gets_the_runs_folder(tmp_path):
    (logger,) = attach(tmp_path, f"{__name__}:Failing")
    assert logger.logger.save_dir == str(tmp_path)


@pytest.mark.parametrize("name", ["wandbb", "no.such.module:Logger", "fedbench.config:Nothing"])
def test_an_unknown_logger_is_refused_before_the_run(tmp_path, name):
    with pytest.raises(ConfigError, match="loggers = "):
        attach(tmp_path, name)


def test_online_without_an_account_is_offline_and_says_so(tmp_path):
    said: list[str] = []
    log_records(attach(tmp_path, "wandb", warn=said.append, mode="online"), lines(1))
    assert len(wandb_history(tmp_path)) == 1
    (line,) = said
    assert line.startswith("wandb.mode = online: no W&B account on this machine, logged offline; run `wandb login`")
    assert line.endswith(f"`wandb sync --append {tmp_path}/wandb/offline-run-*`")


def test_an_environment_that_disables_wandb_is_respected(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    loggers = attach(tmp_path, "wandb")
    log_records(loggers, lines(1))
    assert not list(tmp_path.glob("wandb/*run*"))
