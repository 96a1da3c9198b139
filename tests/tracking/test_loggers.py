"""Loggers mirror the records: the same curves, each round once, and never at the cost of the run."""

import csv
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import Entry
from fedbench.results.reader import Records
from fedbench.studies.load import load
from fedbench.studies.run import run
from fedbench.tracking.loggers import catch_up, lay_out, log_page, log_records, make_loggers
from fedbench.tracking.wandb_study import WandbStudy
from fedbench.tracking.wandb_workspace import ADDRESS_FILE
from tests.report.conftest import write_run
from tests.runtime.rounds import small
from tests.tracking.wandb_files import attach, lines, segments, traces, wandb_history

ENTRY = Entry("final", "fedavg", {}, 0, ".")


@pytest.mark.parametrize("name", ["wandb", "csv"])
def test_a_resumed_run_has_every_round_once(tmp_path, name):
    for rounds in (range(1, 6), range(3, 8)):  # the second start goes back to the checkpoint after round 2
        loggers = attach(tmp_path, name)
        for round_ in rounds:
            log_records(loggers, lines(round_))
        loggers[0].finalize()
    assert logged_rounds(tmp_path, name) == list(range(1, 8))


@pytest.mark.parametrize("name", ["wandb", pytest.param("csv", marks=pytest.mark.night)])
def test_rounds_that_a_killed_logger_never_wrote_are_filled_from_the_records(tmp_path, name):
    script = f"""
import os, pathlib, signal
from tests.tracking.test_loggers import attach, lines
from fedbench.tracking.loggers import log_records
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
    assert "Failing failed and is disabled" in said[0]
    assert [row["step"] for row in csv_rows(tmp_path)] == ["1", "2"]


def test_an_own_logger_gets_the_runs_folder(tmp_path):
    (logger,) = attach(tmp_path, f"{__name__}:Failing")
    assert logger.logger.save_dir == str(tmp_path)


def client_columns(folder):
    rows = csv_rows(folder)
    return [{key: value for key, value in row.items() if "/client_" in key or key == "step"} for row in rows]


def test_a_curve_per_client_is_logged_where_it_is_asked_for(tmp_path):
    """As the run goes, and again from its records; values are those of clients.parquet."""
    asked = dict(rounds=2, loggers=["csv"])
    run(small(out=str(tmp_path / "plain"), **asked), report=False)
    done = run(small(out=str(tmp_path / "run"), log_clients=True, **asked), report=False)
    assert done.config.key() == load(tmp_path / "plain").config.key(), "it is the same run"
    rows = client_columns(tmp_path / "run")
    assert not any("/client_" in key for key in csv_rows(tmp_path / "plain")[0])
    frame = Records(tmp_path / "run").clients().set_index(["round", "client", "point"])["test_accuracy"]
    for row in rows:
        for client in range(10):
            for point in ("after_agg", "after_fit"):
                value = float(row[f"{point}_test_accuracy/client_{client:02d}"])
                assert value == pytest.approx(frame[int(row["step"]), client, point])
    shutil.rmtree(tmp_path / "run" / "csv")
    catch_up(make_loggers(done.config, tmp_path / "run", ENTRY, resume=False), tmp_path / "run")
    assert client_columns(tmp_path / "run") == rows


@pytest.mark.parametrize("mode", ["disabled", "offline"])
def test_the_page_of_a_study_goes_to_wandb_where_that_is_asked_for_and_enabled(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("WANDB_MODE", mode)
    write_run(tmp_path, "fedper", seeds=[0])
    log_page(tmp_path, Config(loggers=["csv"]), pytest.fail)
    assert not (tmp_path / "wandb").exists()
    log_page(tmp_path, Config(loggers=["wandb"]), pytest.fail)
    assert len(segments(tmp_path)) == (mode == "offline")


def test_a_study_whose_page_is_offline_says_how_it_gets_a_workspace(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_MODE", "offline")
    write_run(tmp_path, "fedper", seeds=[0])
    with caplog.at_level("INFO", "fedbench"):
        log_page(tmp_path, Config(loggers=["wandb"]), pytest.fail)
    assert f"once there is a connection, `fedbench wandb {tmp_path}` uploads the runs and lays out" in caplog.text


def test_a_workspace_that_cannot_be_created_is_one_warning_after_the_upload(tmp_path, monkeypatch, caplog):
    """What W&B's own package says without an account, offline or not."""
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    write_run(tmp_path / "run", "fedper", seeds=[0])
    study, said = WandbStudy.load(tmp_path / "run"), []
    online = SimpleNamespace(offline=False, disabled=False, entity="me")
    lay_out(study, online, said.append)
    (line,) = said
    assert line.startswith("the W&B workspace could not be created (UsageError: ")
    (tmp_path / "run" / ADDRESS_FILE).write_text("https://wandb.ai/me/mine?nw=1\n")
    with caplog.at_level("INFO", "fedbench"):
        lay_out(study, online, pytest.fail)
    assert "W&B workspace: https://wandb.ai/me/mine?nw=1" in caplog.text


def test_so_does_the_page_over_the_parts_of_a_study(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "table.csv").write_text("method,ours\nfedavg,90\n")
    log_page(tmp_path, Config(loggers=["wandb"]), pytest.fail)
    assert len(segments(tmp_path)) == 1


def test_a_page_that_cannot_be_logged_is_one_warning(tmp_path):
    said = []
    log_page(tmp_path / "nowhere", Config(loggers=["wandb"]), said.append)
    assert [line.partition(" (")[0] for line in said] == [
        f"the report of {tmp_path / 'nowhere'} was not uploaded to W&B"
    ]


@pytest.mark.parametrize("name", ["wandbb", "no.such.module:Logger", "fedbench.config:Nothing"])
def test_an_unknown_logger_is_refused_before_the_run(tmp_path, name):
    with pytest.raises(ConfigError, match="loggers = "):
        attach(tmp_path, name)
