"""A study at W&B: what a real one wrote offline, grouped as W&B groups; and one sent out of its records."""

from pathlib import Path

import pandas as pd
import pytest

from fedbench.config import Config, WandbConfig
from fedbench.errors import ConfigError
from fedbench.results.plan import Entry, Plan
from fedbench.results.reader import Records
from fedbench.studies.grid import grid
from fedbench.tracking.wandb_log import start_run
from fedbench.tracking.wandb_study import WandbStudy, send, send_study
from tests.report.conftest import add_lambda, write_run
from tests.runtime.rounds import small
from tests.tracking.wandb_files import OfflineRun, segments


@pytest.fixture(scope="module")
def a_grid(tmp_path_factory):
    """Two points of a method, then three seeds of the better one and of a baseline, logged as they ran."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
            patch.delenv(name, raising=False)
        patch.setenv("NETRC", str(home / "no-netrc"))
        patch.setenv("WANDB_CONFIG_DIR", str(home))
        out = tmp_path_factory.mktemp("studies") / "mine"
        train = {"lr": 0.1, "momentum": 0.5, "epochs": 1}
        asked = small("fedprox", rounds=2, seeds=[0, 1, 2], train=train, loggers=["wandb"], out=str(out))
        grid(asked, space={"method.mu": [0.01, 0.1]}, baselines=["local"], tune_seeds=[90], trials=1)
        yield out


def read_back(study: Path) -> dict[str, OfflineRun]:
    """Every W&B run of a study by its name."""
    folders = [study, *((study / entry.path) for entry in Plan.read(study).entries)]
    found = [OfflineRun(path) for folder in dict.fromkeys(folders) for path in segments(folder)]
    return {own.run.display_name: own for own in found}


def test_a_study_is_one_group_with_a_run_per_seed_and_the_same_names_in_all(a_grid):
    runs = read_back(a_grid)
    finals = [f"{label} seed {seed}" for label in ("fedprox", "local") for seed in (0, 1, 2)]
    tried = [f"fedprox mu={mu} seed 90" for mu in (0.01, 0.1)]
    assert sorted(runs) == sorted([*finals, *tried, "mine"])
    assert {own.run.run_group for own in runs.values()} == {"mine"}
    assert {runs[name].run.job_type for name in tried} == {"fedprox (candidate)"}
    scores = [{key for key in row if key.startswith("after_agg/test_")} for name in finals for row in runs[name].rows]
    assert len(scores) == 12
    assert all(own == scores[0] for own in scores)
    assert "after_agg/test_accuracy" in scores[0]
    assert {row["round"] for name in finals for row in runs[name].rows} == {1, 2}
    assert [runs[name].config["seeds"] for name in finals] == [[0], [1], [2]] * 2
    assert runs["fedprox seed 0"].config["method"]["mu"] in (0.01, 0.1)
    assert {"digits", "dirichlet", "final"} < set(runs["local seed 1"].run.tags)


def test_grouped_by_job_type_the_runs_are_mean_and_band_over_the_final_seeds(a_grid):
    runs = read_back(a_grid).values()
    rows = pd.DataFrame([{"method": own.run.job_type, **row} for own in runs for row in own.rows])
    bands = rows.groupby(["method", "_step"])["after_agg/test_accuracy"].agg(["mean", "std", "count"])
    plan = Plan.read(a_grid)
    for label, run in plan.records(a_grid).items():
        metrics = run.metrics().query("point == 'after_agg'").groupby("round")["test_accuracy"]
        assert bands.loc[label, "count"].tolist() == [3, 3]
        assert bands.loc[label, "mean"].tolist() == pytest.approx(metrics.mean().tolist())
        assert bands.loc[label, "std"].tolist() == pytest.approx(metrics.std().tolist())


def test_the_page_is_an_artifact_and_the_final_table_a_table(a_grid):
    own = read_back(a_grid)["mine"]
    assert own.run.job_type == "study"
    files = {entry.path for entry in own.artifacts["report"].manifest.contents}
    assert files == {"report.html", "plan.json"}
    columns, rows = own.table("final_table")
    assert {row[columns.index("method")] for row in rows} == {"fedprox", "local"}
    assert {row[columns.index("seeds")] for row in rows} == {3}


def test_a_run_that_never_logged_is_sent_out_of_its_records_once(tmp_path):
    write_run(tmp_path, "fedmosaic", seeds=[0], rounds=4)
    add_lambda(tmp_path, rounds=4, seeds=[0])
    study = WandbStudy.load(tmp_path, {"mode": "offline", "tags": ["paper"]})
    (seed,) = study.seeds
    assert not seed.sent_offline()
    assert send(seed) == 4
    (path,) = segments(tmp_path)
    own = OfflineRun(path)
    assert [row["round"] for row in own.rows] == [1, 2, 3, 4]
    assert "lambda/client_00" in own.rows[1]
    costs = Records(tmp_path).metrics().query("point == 'after_fit'")
    assert own.rows[-1]["bytes"] == costs[["bytes_up", "bytes_down"]].sum().sum()
    assert own.run.run_group == "digits-dirichlet"
    assert "paper" in own.run.tags
    assert seed.sent_offline()
    assert send(seed) == 0
    assert [seed.rounds, len(seed.offline_parts())] == [[1, 2, 3, 4], 2]


def test_an_unfinished_run_is_left_out_and_named(tmp_path):
    write_run(tmp_path, "fedper", seeds=[3], done=2)
    study = WandbStudy.load(tmp_path)
    assert study.seeds == []
    assert study.left_out() == {"fedper seed 3 (.)": "not finished"}


def test_a_study_whose_runs_all_failed_is_sent_with_an_empty_table(tmp_path):
    entry = Entry("final", "fedper", {}, 0, "gone", "failed", "boom")
    Plan("compare", None, Config(wandb={"mode": "offline"}).model_dump(mode="json"), [entry]).write(tmp_path)
    study = WandbStudy.load(tmp_path)
    assert study.table.empty
    assert send_study(study).id


def test_what_was_asked_for_goes_before_what_the_study_said(tmp_path):
    write_run(tmp_path, "fedper", seeds=[0], wandb={"project": "old", "group": "mine"})
    assert WandbStudy.load(tmp_path).group == "mine"
    study = WandbStudy.load(tmp_path, {"project": "new", "group": "other"})
    assert (study.group, study.place.project, study.seeds[0].config.wandb.project) == ("other", "new", "new")


def test_where_online_is_asked_for_in_vain_nothing_is_written(tmp_path):
    with pytest.raises(ConfigError, match="no W&B account on this machine"):
        start_run(WandbConfig(mode="online"), tmp_path, {"id": "x"}, None)
    assert list(tmp_path.iterdir()) == []


def test_a_study_sent_again_is_the_same_run(tmp_path):
    write_run(tmp_path, "fedper", seeds=[0])
    study = WandbStudy.load(tmp_path, {"mode": "offline"})
    assert send_study(study).id == send_study(study).id
    assert len(segments(tmp_path)) == 1, "`wandb sync` is to send it once"
