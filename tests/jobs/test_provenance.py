"""A run is known by the user's code too: where it has changed, the run is done anew, and what was there stays."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedbench import tune_space
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs import provenance
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_job import run_job
from fedbench.jobs.run_names import default_name
from fedbench.results.events import Evaluation, WatchedEvent
from fedbench.results.plan import Plan
from fedbench.studies.compare import compare
from fedbench.studies.compared_methods import ComparedMethod, method_names
from fedbench.studies.run import run
from fedbench.tracking.wandb_log import run_arguments
from fedbench.user_code import name_of
from tests.runtime.rounds import read, small

METHOD = """
from fedbench.methods.base import Method
class Scaled(Method):
    def train(self, client, received):
        trained = client.fit(received, client.train)
        trained.params.mul_({by})
        return self.upload(client, trained)
"""
NET = """
import torch
from lightning import LightningModule
class Net(LightningModule):
    def __init__(self, classes=10):
        super().__init__()
        self.head = torch.nn.Linear(64, classes)
    def forward(self, x):
        return self.head(x.flatten(1)) * {by}
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
DATA = """
from tests.runtime.rounds import odd_images
def make(train):
    return [(image**{by}, label) for image, label in odd_images(train)]
"""
RULE = """
def rule(vectors, weights, current):
    return vectors.mean(0) * {by}
"""
TASK = """
from fedbench.tasks import Task
class Own(Task):
    def loss(self, outputs, targets, reduction="mean"):
        losses = (outputs.view_as(targets) - targets * {by}).square()
        return losses if reduction == "none" else losses.mean()
"""
OWN = {
    "method": ("own_method:Scaled", METHOD),
    "model": ("own_net:Net", NET),
    "data": ("own_data:make", DATA),
    "aggregator": ("own_rule:rule", RULE),
    "task": ("own_task:Own", TASK),
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder to work in whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is written twice within a second
    yield tmp_path
    forget()


def forget() -> None:
    """As in another process."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def asked(section: str, by: float, more: str = "", **pairs) -> Config:
    """A run with code of the user's for a section. by: what this code does."""
    forget()
    name, text = OWN[section]
    Path(f"{name.partition(':')[0]}.py").write_text(text.format(by=by) + more)
    if section in ("data", "task"):
        pairs["partition"] = {"name": "iid", "clients": 4}
    if section == "task":
        return small(data={"name": "diabetes", "task": name}, **pairs)
    return small(name, **pairs) if section == "method" else small(**{section: name}, **pairs)


def run_of(config: Config, **more) -> tuple[Path, list[int]]:
    """The folder of a run, and the rounds that were made for it."""
    rounds: list[int] = []
    result = run(
        config, report=False, watch=lambda e: rounds.append(e.round) if isinstance(e, Evaluation) else None, **more
    )
    return result.folder, rounds


@pytest.mark.parametrize("section", OWN)
def test_changed_code_is_run_anew_and_said_and_what_was_there_is_taken_again(here, caplog, section):
    first, rounds = run_of(asked(section, 1.0, rounds=1))
    kept = read(first)
    assert rounds == [1]
    assert not caplog.messages
    second, rounds = run_of(asked(section, 0.5, rounds=1))
    assert rounds == [1]
    file = OWN[section][0].partition(":")[0] + ".py"
    what = f"{file} and data {OWN[section][0]} have" if section == "data" else f"{file} has"
    assert caplog.messages == [
        f"{what} changed since: run again (1 run; earlier results stay, --keep-results uses them)"
    ]
    assert read(second)["metrics.jsonl"] != kept["metrics.jsonl"]
    assert run_of(asked(section, 0.5, "# a remark\n", rounds=1)) == (second, [])
    assert run_of(asked(section, 1.0, rounds=1)) == (first, [])
    assert read(first) == kept
    assert len(caplog.messages) == 1
    told = json.loads((first / "environment.json").read_text())["code"]
    assert list(told) == ([section, "content"] if section == "data" else [section])
    assert next(iter(told[section]["files"])) == file


def test_metrics_and_tasks_of_the_users_are_part_of_what_a_run_is_known_by():
    asked = Config(data={"task": "mine:TASK"}, evaluate={"metric": "own:first", "metrics": ["own:second", "top5"]})
    found = provenance.user_names(asked)
    assert found == {"task": "mine:TASK", "metric own:first": "own:first", "metric own:second": "own:second"}


def test_a_folder_that_was_asked_for_follows_the_code(here, caplog):
    assert run_of(asked("method", 1.0, rounds=1, out="mine")) == (Path("mine"), [1])
    kept = read(here / "mine")
    assert run_of(asked("method", 0.5, rounds=1, out="mine"))[1] == [1]
    assert "own_method.py has changed since: run again (1 run" in caplog.text
    changed = read(here / "mine")
    assert changed["metrics.jsonl"] != kept["metrics.jsonl"]
    assert run_of(asked("method", 0.5, rounds=1, out="mine"))[1] == []
    assert run_of(asked("method", 0.7, rounds=1, out="mine", keep_results=True))[1] == []
    assert read(here / "mine") == changed
    assert run_of(asked("method", 1.0, rounds=1, out="mine"))[1] == []
    assert read(here / "mine") == kept


def test_kept_results_are_taken_where_that_is_asked_for_and_said(here, caplog):
    first, _ = run_of(asked("method", 1.0, rounds=1))
    assert run_of(asked("method", 0.5, rounds=1, keep_results=True)) == (first, [])
    assert caplog.messages == [
        "own_method.py has changed since: kept results are used all the same (1 run; --keep-results)"
    ]
    _, rounds = run_of(asked("method", 0.5, rounds=1, seeds=[0, 1], keep_results=True))
    assert rounds == [1]  # of the other seed
    assert "keep_results" not in (first / "config.yaml").read_text()


def test_a_run_that_was_begun_with_other_code_is_not_gone_on_with(here):
    config = asked("method", 1.0, rounds=3, checkpoint={"every": 1})

    class Ended(Exception):
        pass

    def end(event: WatchedEvent) -> None:
        if isinstance(event, Evaluation) and event.round == 2:
            raise Ended

    with pytest.raises(Ended):
        run(config, watch=end)
    changed = dict(rounds=3, checkpoint={"every": 1})
    with pytest.raises(ConfigError, match=r"--resume: .* holds no run to continue"):
        run(asked("method", 0.5, **changed), resume=True)
    for keep in (True, False):
        assert run_of(asked("method", 0.5 + keep / 10, keep_results=keep, **changed))[1] == [1, 2, 3]
    assert run_of(asked("method", 1.0, **changed), resume=True)[1] == [2, 3]


def test_a_run_that_does_not_say_with_which_code_it_was_made_is_not_taken_for_done(here, caplog):
    config = asked("method", 1.0, rounds=1)
    folder, _ = run_of(config)
    old = folder.rename(
        folder.with_name(folder.name.replace(f"-{provenance.short_fingerprint(resolve(config).config)}", ""))
    )
    for name, lacks in (("environment.json", "code"), ("summary.json", "crc32")):
        tree = json.loads((old / name).read_text()) | {"crc32": {}}
        del tree[lacks]
        (old / name).write_text(json.dumps(tree))
    assert run_of(asked("method", 1.0, rounds=1, keep_results=True)) == (old, [])
    with pytest.raises(ConfigError) as error:
        run(asked("method", 1.0, rounds=1, out=str(old)), report=False)
    assert str(error.value) == (
        f"{old} holds a run of other code or data (no record says with which content of own_method:Scaled kept results "
        "were made); give --keep-results to use it, or another --out"
    )
    assert run_of(asked("method", 1.0, rounds=1)) == (folder, [1])
    assert "no record says with which content of own_method:Scaled kept results were made: run again" in caplog.text


def test_a_comparison_runs_anew_what_has_changed_and_nothing_else(here, caplog):
    def compared(by: float, **more) -> tuple[list[str], float | None]:
        config = asked("method", by, rounds=1, seeds=[0], **more)
        common = config.model_copy(update={"method": Config().method})
        runs: list[str] = []
        found = compare(common, ["own_method:Scaled"], tune=0, trials=1, watch=lambda *told: runs.extend(told[2]))
        scores = {entry.label: entry.scores["test"] for entry in Plan.read(found.folder).entries}
        assert len(scores) == 4
        return list(dict.fromkeys(runs)), scores["own_method:Scaled"]

    runs, before = compared(1.0)
    assert len(runs) == 4
    runs, now = compared(0.0)
    assert runs == ["own_method:Scaled default seed 0"]
    assert now != before
    assert "own_method.py has changed since: run again (1 run" in caplog.text
    assert compared(1.0) == ([], before)
    assert compared(0.5, keep_results=True)[0] == []


def test_a_process_that_has_other_code_does_not_do_the_job(here):
    job = Job.of(resolve(asked("method", 1.0, rounds=1)).config, 0, here)
    asked("method", 0.5)
    assert run_job(job) is not None
    outcome = job.outcome()
    assert outcome.status == "failed"
    assert outcome.error == (
        "ConfigError: the code of own_method:Scaled has changed since the command began; repeat the command"
    )


OTHER = (
    "own_method.py: this process has imported other code for own_method:Scaled; that is what runs: to run the files, "
    "restart Python, or import what has changed again (importlib.reload)"
)


def test_a_file_that_has_changed_since_it_was_imported_is_warned_of(here, caplog):
    first, _ = run_of(asked("method", 1.0, rounds=1))
    Path("own_method.py").write_text(METHOD.format(by=0.123))
    assert run_of(small("own_method:Scaled", rounds=1)) == (first, [])
    assert caplog.messages == [OTHER]


def test_a_file_that_other_processes_would_import_otherwise_is_refused(here):
    config = asked("method", 1.0, rounds=1)
    importlib.import_module("own_method")
    provenance.code_record(config)
    Path("own_method.py").write_text(METHOD.format(by=0.123))
    said = r"^own_method.py: this process has imported other code for own_method:Scaled; restart Python, or import "
    with pytest.raises(ConfigError, match=said):
        provenance.check_code_is_current(small("own_method:Scaled", resources={"hosts": 2}))
    with pytest.raises(ConfigError, match=said.lstrip("^")):
        compare(config, ["own_method:Scaled"], tune=0, trials=1)


def test_a_file_that_was_written_to_between_its_import_and_the_first_run_is_other_code(here, caplog):
    forget()
    Path("own_rate.py").write_text("BY = 1.0\n")
    Path("own_method.py").write_text("from own_rate import BY\n" + METHOD.format(by="BY"))
    method = importlib.import_module("own_method")
    Path("own_rate.py").write_text("BY = 0.25\n")
    config = small("own_method:Scaled", rounds=1)
    loaded, _ = run_of(config)
    assert caplog.messages == [OTHER.replace("own_method.py", "own_rate.py")]
    importlib.reload(sys.modules["own_rate"])
    mixed, _ = run_of(config)
    assert caplog.messages[1] == OTHER
    importlib.reload(method)
    caplog.clear()
    written, _ = run_of(config)
    assert len({loaded, mixed, written}) == 3
    assert "imported other code" not in caplog.text
    assert read(loaded)["metrics.jsonl"] == read(mixed)["metrics.jsonl"] != read(written)["metrics.jsonl"]


def test_classes_that_a_function_makes_are_run_each_as_it_is(here):
    forget()
    Path("own_factory.py").write_text(
        f"def make(by):{METHOD.format(by='by')}".replace("\n", "\n    ") + "return Scaled\n"
    )
    module = importlib.import_module("own_factory")
    one, other = (small(name_of(module.make(by)), rounds=1) for by in (1.0, 0.25))
    first, rounds = run_of(one)
    assert rounds == [1]
    second, rounds = run_of(other)
    assert rounds == [1]
    assert first != second
    assert read(first)["metrics.jsonl"] != read(second)["metrics.jsonl"]
    assert run_of(small(name_of(module.make(1.0)), rounds=1)) == (first, [])
    assert run_of(one) == (first, [])


def test_a_notebook_whose_values_are_others_is_run_anew(here, monkeypatch):
    main = ModuleType("__main__")
    exec("import torch\nBY = torch.tensor(1.0)\n" + METHOD.format(by="BY"), main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    asked = small(name_of(main.Scaled), rounds=1)
    first, rounds = run_of(asked)
    assert rounds == [1]
    main.BY = main.torch.tensor(0.25)
    second, rounds = run_of(asked)
    assert (second != first, rounds) == (True, [1])
    main.BY = main.torch.tensor(1.0)
    assert run_of(asked) == (first, [])


def test_metrics_of_the_users_are_part_of_the_code(here):
    forget()
    asked = small(rounds=1, evaluate={"metrics": ["own_metric:share"]})
    prints = []
    for by in (1, 2):
        Path("own_metric.py").write_text(f"def share(scores, labels):\n    return {by}\n")
        prints.append(provenance.code_record(asked)["code"]["metric own_metric:share"]["fingerprint"])
    assert prints[0] != prints[1]


def test_two_methods_of_one_function_are_compared(here):
    forget()
    Path("own_factory.py").write_text(
        f"def make(by):{METHOD.format(by='by')}".replace("\n", "\n    ") + "return Scaled\n"
    )
    make = importlib.import_module("own_factory").make
    names = method_names([make(1.0), make(0.25)])
    assert len({*names}) == 2
    assert [ComparedMethod.parse(name).label for name in names] == names
    assert ComparedMethod.parse(f"{names[0]}:train.lr=0.5").name == names[0]
    assert tune_space.file_of(names[0]) == "scaled"
    assert default_name(resolve(small(names[0])).config).startswith("own_factory-make.-locals-.Scaled@")


READER = """
import numpy as np
def make(train):
    return [(row[:-1], int(row[-1])) for row in np.load("rows.npy")[: 60 if train else 30]]
"""


def test_other_data_are_another_run(here):
    Path("own_reader.py").write_text(READER)
    partition = {"name": "iid", "clients": 2}

    def save(seed: int) -> None:
        rows = np.random.default_rng(seed).normal(size=(60, 4)).astype(np.float32)
        np.save("rows.npy", np.c_[rows, np.arange(60) % 2].astype(np.float32))

    def asked(**more) -> Config:
        return small(data="own_reader:make", partition=partition, rounds=1, **more)

    save(0)
    folder, _ = run_of(asked())
    assert run_of(asked())[1] == []
    save(1)
    other, events = run_of(asked())
    assert other != folder
    assert events
    with pytest.raises(ConfigError, match=r"holds a run of other code or data \(data own_reader:make has changed"):
        run(asked(out=folder))
    save(0)
    assert run_of(asked()) == (folder, [])


def test_what_is_fedbenchs_own_is_known_by_its_name_alone(here):
    config = resolve(small("fedbench.methods.fedper:FedPer")).config
    assert provenance.code_record(config) == {}
    assert default_name(config).endswith(f"-{config.key()}-s0")


def test_changed_code_is_another_run_at_wandb(here):
    entries = []
    for by in (1.0, 0.5):
        config = resolve(asked("method", by, rounds=1)).config
        job = Job.of(config, 0, here)
        run(config.model_copy(update={"out": job.folder}), report=False)
        entries.append(job.entry(here))
    first, second = (run_arguments(config, entry)["id"] for entry in entries)
    assert first != second


def test_the_parts_that_a_model_is_made_of_are_code_of_the_run_too(tmp_path, monkeypatch):
    part = {"class_path": "own_part.Body", "init_args": {"inner": {"class_path": "own_inner.Deep"}, "width": 3}}
    asked = Config(model={"name": "own_lit:Lit", "net": part, "act": {"class_path": "torch.nn.ReLU"}})
    for name in ("own_part", "own_inner", "own_lit"):
        (tmp_path / f"{name}.py").write_text("class Body: pass\nclass Deep: pass\nclass Lit: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert set(provenance.code_record(asked)["code"]) == {
        "model",
        "model part own_part:Body",
        "model part own_inner:Deep",
    }
    before = provenance.short_fingerprint(asked)
    (tmp_path / "own_inner.py").write_text("class Deep:\n    width = 2\n")
    assert provenance.short_fingerprint(asked) != before
