"""What arrives at W&B, read back from its offline files."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import wandb

from fedbench import tasks
from fedbench.config import Config
from fedbench.results.plan import Entry
from fedbench.results.reader import Records
from fedbench.tracking import wandb_log
from fedbench.tracking.loggers import account_variables, log_records, with_reachable_loggers
from fedbench.tracking.wandb_log import (
    best_directions,
    last_round,
    note_last_round,
    offline_parts,
    remove_unclosed,
    run_arguments,
    run_tags,
    silence_of,
)
from tests.report.conftest import add_newcomers, write_run
from tests.tracking.wandb_files import OfflineRun, attach, lines, segments, traces, wandb_history


def read_back(folder):
    (path,) = segments(folder)
    return OfflineRun(path)


def test_an_offline_file_holds_both_points_lines_and_histograms_of_clients_and_what_was_spent(tmp_path):
    (logger,) = attach(tmp_path, "wandb")
    for round_ in (1, 2):
        rows = traces(round_) + traces(round_, name="critical_share")
        log_records([logger], lines(round_, accuracy=round_ / 10), rows)
    logger.finalize()
    rows = read_back(tmp_path).rows
    assert [(row["round"], row["_step"], row["bytes"], row["steps"]) for row in rows] == [(1, 1, 8, 5), (2, 2, 16, 10)]
    assert [row["after_agg/test_accuracy"] for row in rows] == [0.1, 0.2]
    assert [row["after_fit/test_accuracy"] for row in rows] == pytest.approx([0.2, 0.3])
    assert [row["lambda/client_02"] for row in rows] == [1.002, 2.002]
    assert rows[0]["critical_share/client_01"] == 1.001
    assert [sum(row["lambda/histogram/values"]) for row in rows] == [3, 3]


def test_a_run_is_one_seed_in_the_group_of_its_study_with_the_label_as_job_type_and_axes(tmp_path):
    entry = Entry("final", "fedcac tau=0.3", {"train.lr": 0.1}, 2, ".")
    (logger,) = attach(tmp_path, "wandb", entry=entry, group="grid-1", tags=["paper"])
    logger.log_hyperparams({"method": {"name": "fedcac", "tau": 0.3}, "rounds": 4})
    logger.finalize()
    told = read_back(tmp_path)
    assert (told.run.run_group, told.run.job_type, told.run.display_name) == (
        "grid-1",
        "fedcac tau=0.3",
        "fedcac tau=0.3 seed 2",
    )
    assert list(told.run.tags) == ["paper", "fedavg", "digits", "dirichlet", "final"]
    assert told.config["method"] == {"name": "fedcac", "tau": 0.3}
    assert {"round", "bytes", "steps"} <= set(told.metrics)
    assert told.metrics["*"].step_metric == "round"
    best, least = (told.metrics[f"after_agg/test_{name}"].summary for name in ("accuracy", "loss"))
    assert (best.last, best.max, best.min) == (True, True, False)
    assert (least.last, least.max, least.min) == (True, False, True)


def test_points_that_are_tried_do_not_count_into_the_mean_of_their_method():
    tried = [run_arguments(Config(), Entry("candidate", "fedper", {"train.lr": rate}, 90, ".")) for rate in (0.1, 0.2)]
    assert [own["name"] for own in tried] == ["fedper lr=0.1 seed 90", "fedper lr=0.2 seed 90"]
    assert {own["job_type"] for own in tried} == {"fedper (candidate)"}
    assert "candidate" in tried[0]["tags"]


def test_what_stands_in_two_studies_or_under_two_labels_is_as_many_runs():
    groups = [Config(wandb={"group": name}) for name in ("a", "b")]
    asked = [run_arguments(config, Entry("final", label, {}, 0, ".")) for config in groups for label in ("x", "y")]
    assert len({own["id"] for own in asked}) == 4
    assert run_arguments(groups[0], Entry("final", "x", {"train.lr": 0.1}, 0, "elsewhere"))["id"] == asked[0]["id"]


def test_tags_are_of_a_length_that_wandb_takes():
    assert run_tags(["a", "a", " "], "parquet:/" + "x" * 80) == ["a", "x" * 64]


def test_the_summary_of_a_finished_run_has_last_and_best_and_the_clients(tmp_path):
    write_run(tmp_path, "fedper", seeds=[0], rounds=6, clients=3)
    add_newcomers(tmp_path, 0.7, seeds=[0])
    (logger,) = attach(tmp_path, "wandb")
    records = Records(tmp_path)
    scores = records.metrics().query("point == 'after_agg'").set_index("round")
    log_records([logger], records.metrics().query("round > 3").to_dict("records"))  # this start had not all of them
    logger.conclude(records)
    logger.finalize()
    told = read_back(tmp_path)
    accuracy = scores["test_accuracy"]
    assert told.summary["after_agg/test_accuracy"] == {"last": accuracy[6], "max": accuracy.max()}
    assert told.summary["after_agg/test_loss"]["min"] == scores["test_loss"].min()
    best = scores["val_accuracy"].idxmax()
    assert told.summary["best_val/after_agg/round"] == best
    assert told.summary["best_val/after_agg/test_accuracy"] == accuracy[best]
    columns, rows = told.table("clients")
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [(row["client"], row["point"]) for row in found] == [
        (client, point) for client in range(3) for point in ("after_agg", "after_fit")
    ]
    assert {row["round"] for row in found} == {6}
    assert told.rows[-1]["round"] == 6
    assert told.summary["newcomers/epochs/2/test_accuracy"] == pytest.approx(0.71)
    assert len(told.table("newcomers")[1]) == 8
    json.dumps(rows, allow_nan=False)


def test_the_best_value_is_the_lowest_where_lower_is_better_and_none_of_a_function_that_does_not_say():
    asked = {"metrics": ["torchmetrics:MeanAbsoluteError", "tests.studies.other_tasks:half_score"]}
    best = best_directions(tasks.load("regression", asked))
    assert best["after_agg/test_torchmetrics:MeanAbsoluteError"] == best["after_agg/test_worst_tenth"] == "min"
    assert not [key for key in best if "half_score" in key]


def test_online_without_an_account_is_offline_and_says_so(tmp_path):
    said: list[str] = []
    log_records(attach(tmp_path, "wandb", warn=said.append, mode="online"), lines(1))
    assert len(wandb_history(tmp_path)) == 1
    (line,) = said
    assert line.startswith("wandb.mode = online: no W&B account on this machine; logged offline; run `wandb login`")
    assert line.endswith(f"`wandb sync {tmp_path}/wandb/offline-run-*`")


@pytest.fixture
def variables(monkeypatch):
    """Sets W&B's variables, which it reads once in a process."""

    def given(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"WANDB_{name}", value)
        wandb.teardown()

    yield given
    monkeypatch.undo()
    wandb.teardown()
    silence_of.cache_clear()


def test_the_variables_of_wandb_are_the_defaults_of_the_keys(variables, tmp_path):
    variables(PROJECT="mine", ENTITY="lab", RUN_GROUP="night", NAME="first", TAGS="a,b")
    log_records(attach(tmp_path, "wandb"), lines(1))
    told = read_back(tmp_path).run
    assert (told.project, told.entity, told.run_group, told.display_name) == (
        "mine",
        "lab",
        "night",
        "first fedavg seed 0",
    )
    assert list(told.tags)[:2] == ["a", "b"]
    assert Config(wandb={"project": "other", "tags": "c"}).wandb.tags == ["c"]


def test_every_seed_has_an_id_of_its_own_and_the_variables_that_would_have_it_otherwise_are_named(variables, tmp_path):
    variables(RUN_ID="abc", SWEEP_ID="xyz")
    said: list[str] = []
    for seed in (0, 1):
        own = Entry("final", "fedavg", {}, seed, ".")
        log_records(attach(tmp_path / str(seed), "wandb", warn=said.append, entry=own), lines(1, seed))
    ids = [read_back(tmp_path / seed).run.run_id for seed in "01"]
    assert ids == [run_arguments(Config(), Entry("final", "fedavg", {}, seed, "."))["id"] for seed in (0, 1)]
    assert {line.split(" is ignored")[0] for line in said} == {"WANDB_RUN_ID", "WANDB_SWEEP_ID"}


def test_a_server_that_never_answers_is_waited_for_once(variables, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "fedbench")
    monkeypatch.setattr(wandb_log, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes the call
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        variables(API_KEY="a" * 40, BASE_URL=url)
        said: list[str] = []
        for seed in "01":
            own = Entry("final", "fedavg", {}, int(seed), ".")
            log_records(attach(tmp_path / seed, "wandb", warn=said.append, entry=own), lines(1))
        asked = Config(loggers=["wandb"])
        assert (with_reachable_loggers(asked).wandb.mode, asked.wandb.mode) == ("offline", "auto")
    assert said == [f"W&B cannot be reached; logged offline; {url}: timed out"] * 2
    asked_for = [record.message for record in caplog.records if record.name == "fedbench"]
    assert asked_for == [f"waiting for W&B at {url}, 0.2 s at most"]
    assert [len(wandb_history(tmp_path / seed)) for seed in "01"] == [1, 1]


def test_a_server_that_says_anything_answers():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        port = server.getsockname()[1]
        pool.submit(answer, server)
        assert silence_of(f"http://127.0.0.1:{port}") is None
    assert "Connection refused" in str(silence_of(f"http://127.0.0.1:{port}/again"))


def answer(server: socket.socket) -> None:
    call, _ = server.accept()
    with call:
        call.recv(1000)
        call.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")


def test_an_environment_that_disables_wandb_is_respected(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    loggers = attach(tmp_path, "wandb")
    log_records(loggers, lines(1))
    wandb.teardown()
    assert not list(tmp_path.glob("wandb/*run*"))


def test_the_account_of_this_machine_goes_along_to_others(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    netrc = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("WANDB_ENTITY", "lab")
    assert account_variables(["wandb"]) == {"WANDB_ENTITY": "lab"}
    host = wandb.setup(wandb.Settings(silent=True)).settings.base_url.removeprefix("https://")
    netrc.write_text(f"machine {host} login user password {'0' * 40}\n")
    assert account_variables(["wandb"]) == {"WANDB_ENTITY": "lab", "WANDB_API_KEY": "0" * 40}
    monkeypatch.setenv("WANDB_API_KEY", "1" * 40)
    assert account_variables(["csv", "wandb"])["WANDB_API_KEY"] == "1" * 40
    assert account_variables(["csv"]) == {}


def test_a_closed_part_says_which_round_was_its_last(tmp_path):
    (logger,) = attach(tmp_path, "wandb")
    run_id = logger.logger.run.id
    for round_ in (1, 2, 3):
        log_records([logger], lines(round_))
    assert last_round(offline_parts(tmp_path, run_id)) == -1
    logger.finalize("failed")
    assert last_round(offline_parts(tmp_path, run_id)) == 3
    assert offline_parts(tmp_path, run_id[1:]) == []
    assert last_round([]) is None


def test_a_part_that_was_never_closed_is_removed(tmp_path):
    for name in ("20260101_000000-a-b", "20260102_000000-a-b", "20260101_000000-b"):
        (tmp_path / "wandb" / f"offline-run-{name}" / "files").mkdir(parents=True)
    parts = offline_parts(tmp_path, "a-b")
    note_last_round(parts[0], 7)
    assert (len(parts), last_round(parts)) == (2, 7)
    remove_unclosed(parts)
    assert offline_parts(tmp_path, "a-b") == parts[:1]


def test_two_parts_of_one_second_are_both_found(tmp_path):
    for name in ("20260101_000000-a-b", "20260101_000000-a-b-1", "20260101_000000-b-1"):
        (tmp_path / "wandb" / f"offline-run-{name}").mkdir(parents=True)
    assert [part.name[-3:] for part in offline_parts(tmp_path, "a-b")] == ["a-b", "b-1"]
