"""Tasks: which there are, and what they cost to import."""

import re
import subprocess
import sys
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedbench import plugins, tasks
from fedbench.config import Config
from fedbench.data.reading.targets import read_targets
from fedbench.errors import ConfigError, RunError
from fedbench.tasks import Metric, Task, mean_of
from fedbench.tasks.targets import Targets
from fedbench.tasks.task import check_score


def test_the_mean_of_nothing_is_unknown():
    assert mean_of({"mse": (6.0, 4)}, "mse") == 1.5
    assert isnan(mean_of({}, "mse"))
    assert isnan(mean_of({"mse": (0.0, 0)}, "mse"))


def test_every_file_of_the_room_is_a_task_with_a_loss_among_its_metrics():
    assert tasks.names() == ["binary", "classification", "multilabel", "next-token", "regression", "segmentation"]
    for name in tasks.names():
        task = tasks.load(name)
        assert task.name == name
        assert task.loss_metric in {metric.name for metric in task.metrics}
        assert task.primary is task.metrics[0]


def test_metrics_cost_no_torch():
    code = "import sys; from fedbench import tasks; tasks.load('regression'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class Scaled(Task):
    """Half of a number, by its squared error."""

    def __init__(self, by: float = 0.5) -> None:
        self.by = by

    def read_targets(self, values, names=(), classes=None):
        return Targets(values * self.by)

    def loss(self, outputs, targets, reduction="mean"):
        losses = (outputs - targets).square().mean(1)
        return losses if reduction == "none" else losses.mean()


class Odd(Scaled):
    """Each method returns what is asked for, or so it seems."""

    metrics = (Metric("loss", "loss", higher=False), Metric("hits", "hits"))

    def loss(self, outputs, targets, reduction="mean"):
        return (outputs - targets).square().mean()


THIRD = Scaled(1 / 3)
OUTPUTS, TARGETS = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[1.0], [0.0], [1.0]])


def test_a_task_needs_a_loss_alone():
    task = tasks.load(f"{__name__}:Scaled")
    assert (task.name, task.primary.name) == (f"{__name__}:Scaled", "loss")
    assert task.score_all([(OUTPUTS[:2], TARGETS[:2]), (OUTPUTS[2:], TARGETS[2:])], torch.float32) == {
        "loss": (13.0, 3)
    }
    check_score(task, {"loss": (1.0, 2)})


def test_an_instance_keeps_what_it_was_made_with_and_its_own_name():
    assert tasks.load(f"{__name__}:THIRD").by == 1 / 3
    assert THIRD.name == ""


def test_the_hook_reads_the_targets_and_numbers_of_any_shape_stay_as_they_are():
    found = read_targets(np.full((2, 3, 1), 4), f"{__name__}:Scaled")
    assert (found.task, found.values.dtype, found.values.tolist()) == (
        f"{__name__}:Scaled",
        np.float32,
        [[[2.0]] * 3] * 2,
    )
    plain = Task.read_targets(THIRD, np.arange(6).reshape(2, 3))
    assert plain.values.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_package_adds_one_by_name(monkeypatch):
    point = SimpleNamespace(name="scaled", value=f"{__name__}:THIRD", dist=None)
    monkeypatch.setattr(
        plugins, "entry_points_of", lambda group: {"scaled": [point]} if group == "fedbench.tasks" else {}
    )
    assert read_targets(np.array([3, 6]), "scaled").values.tolist() == [1, 2]
    assert tasks.load("scaled").name == "scaled"


def test_python_takes_the_class_itself_and_sends_it_to_other_processes():
    assert Config(data={"task": Scaled}).data.task == f"{__name__}:Scaled"
    local = type("Local", (Scaled,), {"__module__": "__main__"})
    name, sent = (found := Config(data={"task": local})).data.task, found.__getstate__()["objects"]
    assert name.startswith("__main__:Local")
    assert sent[name].thing is local
    assert tasks.load(name).by == 0.5


def test_the_example_of_the_docs_is_a_task(monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    (code,) = re.findall(r"```python\n(from torch import maximum.*?)```", text, re.DOTALL)
    exec(code, names := {"__name__": __name__})
    monkeypatch.setitem(globals(), "Quantile", names["Quantile"])
    score = tasks.load(f"{__name__}:Quantile").score_all(
        [(torch.zeros(2, 1), torch.tensor([4.0, -4.0]))], torch.float32
    )
    assert score == {"pinball": (0.75 * 4 + 0.25 * 4, 2)}


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ("none", "read_targets must return Targets; it returned ndarray"),
        ("short", r"read_targets must keep numbers for all 4 samples; it returned float64 \[1\]"),
        ("fails", r"read_targets fails: ZeroDivisionError: .* \(test_task.py:\d+\)"),
    ],
)
def test_a_hook_that_reads_no_targets_is_one_line(by, line, monkeypatch):
    monkeypatch.setattr(Odd, "read_targets", lambda self, values, names, classes: ODD[by](values))
    with pytest.raises(ConfigError, match=line):
        read_targets(np.arange(4.0), f"{__name__}:Odd")


ODD = {"none": lambda values: values, "short": lambda values: Targets(values[:1]), "fails": lambda values: 1 / 0}


def test_scores_and_losses_of_other_forms_are_one_line():
    task = tasks.load(f"{__name__}:Odd")
    with pytest.raises(RunError, match=r"one number for every sample, shape \[batch\]; it returned \[\]"):
        task.score_all([(OUTPUTS, TARGETS)], torch.float32)
    wrong: list[tuple[object, str]] = [
        ({"loss": 3.0}, "must return a dict of pairs"),
        ({"loss": (3.0, 1), "misses": (3, 1)}, "returns misses, which is none of its metrics loss, hits"),
        ({"hits": (3, 1)}, "returns no loss, its loss"),
    ]
    for score, line in wrong:
        with pytest.raises(RunError, match=line):
            check_score(task, score)


@pytest.mark.parametrize(
    ("members", "line"),
    [
        ({"metrics": ()}, "its metrics must be a tuple"),
        ({"loss_metric": "error"}, "its loss_metric, error, is none of its metrics"),
        ({"__init__": lambda self, more: None}, "cannot be made: TypeError"),
    ],
)
def test_a_class_that_is_no_task_yet_is_one_line(members, line, monkeypatch):
    monkeypatch.setitem(globals(), "Unready", type("Unready", (Scaled,), members))
    with pytest.raises(ConfigError, match=line):
        tasks.load(f"{__name__}:Unready")
