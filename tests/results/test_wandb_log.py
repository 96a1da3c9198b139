"""What arrives at W&B, read back from its offline files."""

import os

import pytest
import wandb

from fedbench.results.loggers import account, log_records
from tests.results.wandb_files import attach, lines, traces, wandb_history, wandb_records


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
    assert list(run.tags) == ["paper", "fedavg", "digits", "dirichlet", "train"]
    assert run.display_name == "fedavg seed 0"
    assert {r.metric.name or r.metric.glob_name for r in records if r.WhichOneof("record_type") == "metric"} >= {
        "round"
    }


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


def test_the_account_of_this_machine_goes_along_to_others(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    netrc = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("WANDB_ENTITY", "lab")
    assert account(["wandb"]) == {"WANDB_ENTITY": "lab"}
    host = wandb.setup(wandb.Settings(silent=True)).settings.base_url.removeprefix("https://")
    netrc.write_text(f"machine {host} login user password {'0' * 40}\n")
    assert account(["wandb"]) == {"WANDB_ENTITY": "lab", "WANDB_API_KEY": "0" * 40}
    monkeypatch.setenv("WANDB_API_KEY", "1" * 40)
    assert account(["csv", "wandb"])["WANDB_API_KEY"] == "1" * 40
    assert account(["csv"]) == {}
