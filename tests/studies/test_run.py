"""A run is done once, in the folder that was asked for; each of several seeds is kept and taken again."""

import json
import sys
from pathlib import Path

import pytest

from fedbench.config.files import load_yaml as read_yaml
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_names import default_name
from fedbench.results.events import Evaluation, WatchedEvent
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.runtime.ray import cluster
from fedbench.studies.cost import Cost
from fedbench.studies.run import run, worth_hosts
from tests.runtime.rounds import RECORDS, read, small


def test_a_seed_that_is_there_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run(small("fedper", rounds=2), report=False).folder
    kept, begun = read(first), []
    result = run(
        small("fedper", rounds=2, seeds=[0, 1]), watch=lambda e: begun.append(getattr(e, "seed", None)), report=False
    )
    assert set(begun) - {None} == {1}
    assert read(first) == kept
    plan = Plan.read(result.folder)
    assert [(entry.seed, entry.status) for entry in plan.entries] == [(0, "done"), (1, "done")]
    assert (result.folder / plan.entries[0].path).samefile(first)


class Ended(Exception):
    """The run was ended on purpose."""


def test_it_goes_on_in_the_seed_that_it_was_ended_in(tmp_path):
    asked = dict(seeds=[0, 1, 2], checkpoint={"every": 1})

    def end(event: WatchedEvent) -> None:
        if isinstance(event, Evaluation) and (event.seed, event.round) == (1, 3):
            raise Ended

    with pytest.raises(Ended):
        run(small("fedper", out=str(tmp_path / "a"), **asked), watch=end)
    assert {e.seed: e.status for e in Plan.read(tmp_path / "a").entries} == {
        0: "missing",
        1: "missing",
        2: "missing",
    }
    begun: list = []
    told = lambda e: begun.append((e.seed, e.round))  # noqa: E731
    run(small("fedper", out=str(tmp_path / "a"), **asked), watch=told, resume=True)
    run(small("fedper", out=str(tmp_path / "b"), **asked), report=False)
    assert begun == [(1, 3), (1, 4), *((2, round) for round in range(1, 5))]
    for name in RECORDS:
        assert read(tmp_path / "a")[name] == read(tmp_path / "b")[name]
    assert (tmp_path / "a/report.html").exists()


def test_a_refused_run_of_several_seeds_leaves_nothing(tmp_path):
    asked = small(seeds=[0, 1], out=str(tmp_path / "a/b"), partition={"name": "iid", "clients": 2000})
    with pytest.raises(ConfigError):
        run(asked)
    assert not (tmp_path / "a").exists()


EXITS = """
import sys, torch
from lightning import LightningModule
from lightning.pytorch.loggers import CSVLogger
from fedbench.methods.fedavg import FedAvg
from tests.runtime.rounds import odd_images
def at(name):
    if name == "{place}":
        sys.exit(0)
class Net(LightningModule):
    def __init__(self, classes=10):
        super().__init__()
        at("model")
        self.head = torch.nn.Linear(64, classes)
    def forward(self, x):
        return self.head(x.flatten(1))
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
class Mine(FedAvg):
    def check(self):
        at("check")
        return super().check()
    @classmethod
    def adapt_model(cls, *what, **more):
        at("adapt_model")
        return super().adapt_model(*what, **more)
    def start(self, initial):
        at("start")
        return super().start(initial)
    def aggregate(self, server, uploads):
        at("aggregate")
        return super().aggregate(server, uploads)
class Rows(list):
    def __len__(self):
        at("data")
        return super().__len__()
def make(train):
    at("factory")
    return Rows(odd_images(train))
class Log(CSVLogger):
    def __init__(self, save_dir):
        super().__init__(save_dir)
        at("logger")
"""


@pytest.mark.parametrize(
    "place", ["model", "check", "adapt_model", "start", "aggregate", "data", "factory", "logger", "nowhere"]
)
def test_code_of_the_user_that_ends_the_process_is_an_error_that_leaves_nothing(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_exits", raising=False)
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / ".cache"))
    Path("own_exits.py").write_text(EXITS.format(place=place))
    own = dict(data="own_exits:make", model="own_exits:Net", partition={"name": "iid", "clients": 4})
    loggers = ["own_exits:Log"] if place in ("logger", "nowhere") else []
    asked = small("own_exits:Mine", rounds=1, out="out", loggers=loggers, **own)
    if place == "nowhere":
        run(asked, report=False)
        return
    with pytest.raises(ConfigError) as error:
        run(asked, report=False)
    said = ["own_exits:Log", "SystemExit: 0"] if place == "logger" else ["own_exits.py:9", "sys.exit(0) would end"]
    assert all(part in str(error.value) for part in said)
    assert not Path("out").exists()


def test_a_regression_needs_nothing_but_its_data(tmp_path):
    """Driver, records, tables and page know the metrics of no task."""
    asked = small("fedprox", data="diabetes", partition={"name": "iid", "clients": 4}, seeds=[0, 1], out=str(tmp_path))
    result = run(asked)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert list(lines[0])[3:9] == ["val_mse", "test_mse", "val_mae", "test_mae", "val_r2", "test_r2"]
    assert lines[-1]["test_worst_tenth"] >= lines[-1]["test_mse"] > 0
    assert set(result.clients) >= {"val_mse", "test_mse", "test_mae", "test_r2"}
    assert result.summary["metric"] == "mse"
    best = result.metrics.query("point == 'after_agg' and seed == 0")["val_mse"].argmin() + 1
    assert result.summary["points"]["after_agg"]["best_val"]["rounds"][0] == best
    page = result.report.read_text()
    assert "fedprox reached a mean squared error of" in page
    assert "accuracy" not in page.partition("<footer")[0].replace("evaluate.accuracy", "").partition("<script")[0]


def test_a_folder_is_made_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolve(small(rounds=1)).config
    assert run(config, report=False).folder == Path("results/run") / default_name(config)
    config.name = "mine"
    assert run(config, report=False).folder == Path("results/run/mine")
    config.out = tmp_path / "there"
    assert run(config, report=False).folder == tmp_path / "there"


def test_a_finished_run_without_a_page_gets_one(tmp_path):
    run(small("fedper", rounds=2, out=str(tmp_path)), report=False)
    page = run(small("fedper", rounds=2, out=str(tmp_path))).report
    written = page.stat().st_mtime_ns
    assert run(small("fedper", rounds=2, out=str(tmp_path))).report.stat().st_mtime_ns == written


def test_asked_twice_done_once(tmp_path):
    first = run(small("fedper", rounds=2, out=str(tmp_path)), report=False)
    before, written = read(tmp_path), (tmp_path / "summary.json").stat().st_mtime_ns
    seen: list = []
    again = run(small("fedper", rounds=2, out=str(tmp_path)), watch=seen.append, report=False)
    assert seen == []
    assert read(tmp_path) == before
    assert (tmp_path / "summary.json").stat().st_mtime_ns == written
    assert again.summary == first.summary
    assert not (tmp_path / "checkpoint").exists()


def test_going_on_needs_something_to_go_on_with(tmp_path):
    with pytest.raises(ConfigError, match="holds no run to continue"):
        run(small(out=str(tmp_path / "new")), resume=True)


@pytest.fixture
def two_hosts(tmp_path, monkeypatch):
    """A run that leaves its hosts open, where there is room for two and no Ray yet."""
    monkeypatch.setattr("fedbench.jobs.resolve.cores", lambda: 2)
    monkeypatch.setattr(cluster, "is_joined", lambda: False)
    return small(out=str(tmp_path / "a"), resources={"hosts": "auto", "gpus_per_host": 0})


def test_less_work_than_the_start_of_a_ray_stays_in_this_process_and_that_is_said(
    two_hosts, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", "fedbench")
    monkeypatch.setattr(Cost, "seconds", 0.2)
    result = run(two_hosts, report=False)
    assert result.config.resources.hosts == 0
    assert read_yaml(result.folder / "config.yaml")["resources"]["hosts"] == 0
    assert any("hosts = auto: about 0 s of work, in this process" in line for line in caplog.messages)
    other = run(small(out=str(tmp_path / "b")), report=False)
    assert read(result.folder) == read(other.folder)


def test_more_work_is_for_hosts(two_hosts, monkeypatch, caplog):
    caplog.set_level("INFO", "fedbench")
    monkeypatch.setattr(cluster, "START", 0.0)
    resolved = resolve(two_hosts)
    assert worth_hosts(resolved, seeds=3) == 2
    assert caplog.messages[-1].endswith("of work, on 2 hosts")


@pytest.mark.parametrize(
    ("resources", "joined"),
    [({"gpus_per_host": 0.5}, False), ({"address": "10.0.0.1:6379"}, False), ({}, True), ({"hosts": 0}, False)],
)
def test_on_gpus_on_a_cluster_and_beside_a_ray_hosts_are_as_many_as_fit(two_hosts, monkeypatch, resources, joined):
    monkeypatch.setattr(cluster, "is_joined", lambda: joined)
    resolved = resolve(two_hosts)
    config = resolved.config
    config.resources = config.resources.model_copy(update=resources)
    assert worth_hosts(resolved, seeds=1) == config.resources.hosts


def test_a_run_has_no_trials_that_share_a_gpu(tmp_path):
    with pytest.raises(ConfigError, match=r"gpus_per_trial = 0.25: a run has no trials; leave it out, or set gpus_per"):
        run(small(out=str(tmp_path / "a"), resources={"hosts": 0, "gpus_per_trial": 0.25}))
    assert not (tmp_path / "a").exists()


ONE, SEEDS = dict[str, object](), {"seeds": [0, 1]}
SELDOM = dict(participation=0.4, evaluate={"every": 4}, save_models=True)
"""A run of five rounds evaluates the fifth, which one of eight does not, and keeps other models."""


def files_of(folder: Path) -> dict[str, bytes]:
    """All that a run promises to be the same, and its models."""
    models = (folder / "models").rglob("*.safetensors")
    return read(folder) | {str(path.relative_to(folder)): path.read_bytes() for path in models}


@pytest.mark.parametrize("more", [ONE, SEEDS, SELDOM])
def test_more_rounds_continue_a_finished_run_and_leave_the_bits_of_a_longer_one(more, tmp_path, caplog):
    caplog.set_level("INFO", "fedbench")
    kept, seen = {"every": 0, "keep": True}, list[int]()
    run(small("fedper", rounds=5, out=tmp_path / "a", checkpoint=kept, **more), report=False)
    watch = lambda event: seen.extend([event.round] if isinstance(event, Evaluation) else [])  # noqa: E731
    run(small("fedper", rounds=8, out=tmp_path / "a", **more), watch=watch, report=False, resume=True)
    run(small("fedper", rounds=8, out=tmp_path / "b", **more), report=False)
    assert min(seen) >= 5
    assert f"{tmp_path / 'a'} holds 5 rounds: continuing to 8" in caplog.messages
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert read_yaml(tmp_path / "a" / "config.yaml")["rounds"] == 8
    assert not (tmp_path / "a" / "checkpoint").exists(), "the longer run was not to be kept"
    with pytest.raises(ConfigError, match=r"holds a run of another configuration \(rounds: 8 -> 5\)"):
        run(small("fedper", rounds=5, out=tmp_path / "a", **more), report=False)


@pytest.mark.parametrize("more", [ONE, SEEDS])
def test_more_rounds_continue_a_run_that_was_ended(more, tmp_path):
    asked = dict(checkpoint={"every": 1}, out=tmp_path / "a", **more)

    def end(event: WatchedEvent) -> None:
        if isinstance(event, Evaluation) and event.round == 2:
            raise Ended

    with pytest.raises(Ended):
        run(small("fedper", rounds=3, **asked), watch=end)
    seen: list = []
    run(small("fedper", **asked), watch=lambda event: seen.append(getattr(event, "round", None)), report=False)
    run(small("fedper", out=tmp_path / "b", **more), report=False)
    assert seen[0] == 2
    assert read(tmp_path / "a") == read(tmp_path / "b")


@pytest.mark.parametrize("more", [ONE, SEEDS])
@pytest.mark.parametrize(
    ("method", "keep", "said"),
    [
        ("fedper", False, "last state was not kept, so it cannot continue to 3: give another --out, with"),
        ("fedphp", True, "holds a run of 2 rounds that cannot continue to 3: fedphp "),
    ],
)
def test_a_run_that_cannot_continue_says_why_and_stays(method, keep, said, more, tmp_path):
    run(small(method, rounds=2, out=tmp_path, checkpoint={"keep": keep}, **more), report=False)
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as error:
        run(small(method, rounds=3, out=tmp_path, **more), report=False)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == left


def test_a_kept_state_stays_when_the_command_is_repeated_and_costs_no_second_one(tmp_path):
    for _ in range(2):
        run(small(rounds=2, out=tmp_path, checkpoint={"every": 1, "keep": True}), report=False)
        run(small(rounds=2, out=tmp_path), report=False)
        assert [path.name for path in (tmp_path / "checkpoint").glob("round-*")] == ["round-000002.safetensors"]


def test_a_longer_run_gives_the_warnings_of_its_own_number_of_rounds(tmp_path):
    asked = dict(method__tau=4, save_models=True)
    run(small("floco", rounds=3, out=tmp_path / "a", checkpoint={"keep": True}, **asked), report=False)
    assert "method.tau = 4 is not reached in 3 rounds" in " ".join(Records(tmp_path / "a").warnings())
    for folder in ("a", "b"):
        run(small("floco", rounds=5, out=tmp_path / folder, **asked), report=False)
    assert Records(tmp_path / "a").warnings() == Records(tmp_path / "b").warnings() != []


def test_a_scratch_folder_that_cannot_be_used_is_refused_before_ray_starts_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "connect", None)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"resources\.scratch: .* cannot be used \(Not a directory\)"):
        run(small(rounds=1, out=str(tmp_path / "out"), resources={"hosts": 2, "scratch": str(tmp_path / "file")}))
    assert not (tmp_path / "out").exists()
