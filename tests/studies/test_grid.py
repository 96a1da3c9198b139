"""A grid: every point once, the best on validation again over the seeds, beside baselines that had the same chance."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from ray import tune

from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.config.tuning import Tuning
from fedbench.errors import ConfigError
from fedbench.jobs.folder_locks import locked_folder
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.studies.grid import grid, plan_grid
from fedbench.studies.space import Space
from tests.runtime.rounds import small

# In one process where tests run side by side, so that the grid which most of them look at is run once.
pytestmark = pytest.mark.xdist_group("grid")
SPACE = {"train.lr": [0.0001, 0.1], "method.mu": [0.0, 0.1], "train.epochs": [1, 2]}
ASKED: dict[str, Any] = dict(tune_seeds=[90], baselines=["local", "fedprox"], trials=1)


def constraint(values: dict[str, Any]) -> bool:
    return values["train.lr"] == 0.1 or values["method.mu"] == 0.0


def asked(folder: Path, **more) -> Config:
    """The epochs are set, which takes them from the space; the rate is not."""
    return small("fedprox", train={"epochs": 1}, rounds=2, out=str(folder), **{"seeds": [3, 4], **more})


@pytest.fixture(scope="module")
def space() -> Iterator[None]:
    """A space of the method in a file of its own."""
    module = ModuleType("tune_spaces.fedprox")
    vars(module).update(SPACE=SPACE, CONSTRAINT=constraint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tune_spaces.fedprox", module)
        yield


@pytest.fixture(scope="module")
def folder(space, tmp_path_factory) -> Path:
    """A finished grid."""
    out = tmp_path_factory.mktemp("grid") / "out"
    grid(asked(out), **ASKED)
    return out


def plan(folder: Path) -> Plan:
    return Plan.read(folder)


def test_every_point_that_the_constraint_allows_was_run_once(folder):
    tried = plan(folder).points()
    assert [(e.values["train.lr"], e.values["method.mu"]) for e in tried] == [(0.0001, 0.0), (0.1, 0.0), (0.1, 0.1)]
    assert {entry.status for entry in tried} == {"done"}
    assert plan(folder).spaces["fedprox"] == {"train.lr": [0.0001, 0.1], "method.mu": [0.0, 0.1]}
    for entry in tried:
        config = Records(folder / entry.path).config()
        assert (config["train"]["lr"], config["method"]["mu"]) == tuple(entry.values.values())
        assert config["seeds"] == [90] == [entry.seed]


def test_the_best_is_chosen_on_validation(folder):
    found = plan(folder)
    best = max(found.points(), key=lambda entry: entry.scores["val"])
    assert found.choices["fedprox"] == best.values
    assert best.values["train.lr"] == 0.1
    final = found.records(folder)["fedprox"].config()
    assert {"train.lr": final["train"]["lr"], "method.mu": final["method"]["mu"]} == best.values


def test_the_scores_of_a_point_are_those_of_its_run(folder):
    for entry in plan(folder).points():
        metrics = Records(folder / entry.path).metrics().query("point == 'after_agg' and round == 2")
        assert entry.scores == {"val": metrics["val_accuracy"].item(), "test": metrics["test_accuracy"].item()}


def test_baselines_share_partitions_and_seeds(folder):
    finals = plan(folder).records(folder)
    assert list(finals) == ["fedprox", "local"]
    prints = [[Records(path).environment()["partition_fingerprint"] for path in run.folders] for run in finals.values()]
    assert [list(seed) for seed in prints[0]] == [["3"], ["4"]]
    assert prints[0] == prints[1]
    assert all(run.complete() and run.seeds() == [3, 4] for run in finals.values())


def test_a_baseline_is_tuned_over_its_own_space_with_as_many_points(folder):
    found = plan(folder)
    assert found.budget("local") == found.budget("fedprox") == 3
    assert found.even("local", "fedprox")
    assert set(found.spaces["local"]) == {"train.lr", "train.momentum"}
    own = Space.of("local").values
    assert all(entry.values[key] in own[key] for entry in found.points("local") for key in own)
    chosen = found.records(folder)["local"].config()["train"]
    assert {"train.lr": chosen["lr"], "train.momentum": chosen["momentum"]} == found.choices["local"]


def test_a_finished_grid_given_again_runs_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    told = plan(folder)
    grid(asked(folder), **ASKED)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")} == before
    assert plan(folder) == told


def test_a_second_command_waits_for_the_first_one(folder, monkeypatch):
    waits = Event()
    monkeypatch.setattr("fedbench.studies.run_studies.log.warning", lambda line, *more: waits.set())
    with ThreadPoolExecutor(1) as pool:
        with locked_folder(folder):
            second = pool.submit(grid, asked(folder), **ASKED)
            assert waits.wait(60)
            assert not second.done()
        assert second.result(60).best


def test_more_seeds_add_only_what_is_missing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    grid(asked(folder, seeds=[3, 5]), **ASKED)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    assert before.items() <= after.items()
    added = [path.parent.name.rpartition("-")[2] for path in after.keys() - before.keys()]
    assert added == ["s5", "s5"]
    assert plan(folder).records(folder)["fedprox"].seeds() == [3, 5]
    grid(asked(folder), **ASKED)


def test_a_run_of_the_same_configuration_is_taken_from_a_study(folder):
    """A plain run of the results folder finds the job of the grid under its own name."""
    entry = plan(folder).final("local")[0]
    job = Job.of(resolve(Config(**load_yaml(folder / entry.path / "config.yaml"))).config, 3, folder)
    assert job.folder.samefile(folder / entry.path)
    assert job.state == "done"


def test_the_page_is_there_and_tunes_own_files_are_not(folder):
    assert (folder / "report.html").stat().st_size > 10_000
    assert not (folder / ".tune").exists()


@pytest.fixture(scope="module")
def retrained(tmp_path_factory) -> Path:
    """A grid by the other point on two tuning seeds, whose final runs train on all images."""
    out = tmp_path_factory.mktemp("grid") / "out"
    more: dict[str, Any] = dict(baselines=[], tune_seeds=[90, 91], point="after_fit", final_val=0, trials=1)
    grid(asked(out, seeds=[3], method__mu=0.0), space={"train.lr": [0.01, 0.1]}, **more)
    return out


def test_the_choice_goes_by_the_mean_over_the_tuning_seeds_at_the_point_that_was_asked_for(retrained):
    found = plan(retrained)
    scores: dict[float, list[float]] = {}
    for entry in found.entries:
        if entry.role == "candidate":
            metrics = Records(retrained / entry.path).metrics().query("point == 'after_fit' and round == 2")
            scores.setdefault(entry.values["train.lr"], []).append(metrics["val_accuracy"].item())
    assert [len(own) for own in scores.values()] == [2, 2]
    assert [entry.scores["val"] for entry in found.points()] == [pytest.approx(sum(v) / 2) for v in scores.values()]
    assert found.choices["fedprox"] == {"train.lr": max(scores, key=lambda rate: sum(scores[rate]))}


def test_final_runs_train_on_all_images_and_the_page_says_so(retrained):
    found = plan(retrained)
    tried, final = ([e for e in found.entries if e.role == role] for role in ("candidate", "final"))
    shares = [{Records(retrained / e.path).config()["data"]["val"] for e in entries} for entries in (tried, final)]
    assert shares == [{0.1}, {0}]
    assert final[0].values == found.choices["fedprox"]
    page = (retrained / "report.html").read_text()
    assert "chosen on validation accuracy after local training" in page
    assert (
        "Final runs train on all training samples, so there is no best-val round; candidates were tried with 10 %"
        in page
    )
    assert "best-val round</th>" not in page


def test_a_space_with_distributions_is_searched_and_more_samples_add_only_what_is_missing(tmp_path):
    space = {"train.lr": tune.loguniform(0.001, 0.5), "train.momentum": [0.0, -1.0]}
    more: dict[str, Any] = dict(space=space, baselines=[], search="random", trials=1)
    config = asked(tmp_path / "out", seeds=[3], method__mu=0.0)
    points = plan(grid(config, samples=2, **more).folder).points()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("summary.json")}
    found = plan(grid(config, samples=3, **more).folder)
    assert found.points()[:2] == points
    assert len(found.points()) == 3
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert found.search == "random"
    assert {entry.values["train.momentum"] for entry in found.points()} == {0.0}
    assert {(label, why.partition(":")[0]) for label, _, why in found.refused} == {("fedprox", "train.momentum = -1.0")}


def test_seeds_are_refused_before_the_first_trial(tmp_path):
    with pytest.raises(ConfigError, match=r"tune_seeds.*each tune_seed once"):
        grid(asked(tmp_path / "out"), space=SPACE, tune_seeds=[1, 1])
    with pytest.raises(ConfigError, match="tune_seeds: 3 is also a final seed"):
        grid(asked(tmp_path / "out"), space=SPACE, tune_seeds=[3])
    assert not (tmp_path / "out").exists()


def test_without_a_validation_split_there_is_nothing_to_choose_by(tmp_path):
    config = asked(tmp_path / "out", data={"name": "digits", "val": 0})
    with pytest.raises(ConfigError, match=r"data.val = 0: a grid chooses on the validation split"):
        grid(config, space=SPACE)
    assert not (tmp_path / "out").exists()


def test_keys_that_a_models_own_optimiser_does_not_read_are_refused(tmp_path):
    own = asked(tmp_path / "out", model={"name": "tests.runtime.networks:Awkward", "head": "classifier"})
    with pytest.raises(ConfigError, match=r"space: train\.lr: without effect, leave it out: the model's conf"):
        grid(own, space={"train.lr": [0.1, 0.3]}, **ASKED)
    assert not (tmp_path / "out").exists()


def test_keys_listed_in_a_space_are_tuned_for_the_baselines_too_although_a_preset_sets_them():
    config = Config(method={"name": "fedcac", "tau": 0.2}, train={"lr": 0.1, "momentum": 0.5}, seeds=[0])
    asked = {"train.lr": [0.01, 0.1], "method.tau": [0.2]}
    fedcac, local = plan_grid(config, Tuning(), asked, ["local"]).compared
    assert fedcac.points == ({"train.lr": 0.01, "method.tau": 0.2}, {"train.lr": 0.1, "method.tau": 0.2})
    assert len(local.points) == 2
    assert {key for point in local.points for key in point} == {"train.lr"}
    assert local.held == ("train.momentum",)


def test_a_race_needs_somebody_to_compare_with(tmp_path):
    with pytest.raises(ConfigError, match="until_decided needs methods to compare with"):
        grid(Config(out=str(tmp_path / "out")), baselines=[], until_decided=True, margin=1)


def test_the_number_of_runs_at_once_is_a_count():
    for mistake in ("a", 0, True):
        with pytest.raises(ConfigError, match=rf"trials = {mistake!r}: must be a whole number >= 1"):
            grid(Config(method="fedper"), trials=mistake)


def test_pooled_training_alone_is_nobody_to_compare_with(tmp_path):
    with pytest.raises(ConfigError, match="baselines = centralized: until_decided needs methods to compare with"):
        grid(Config(out=str(tmp_path / "out")), baselines=["centralized"], until_decided=True, margin=1)
