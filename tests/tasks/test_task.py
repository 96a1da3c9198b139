"""Tasks: which there are, and what they cost to import."""

import subprocess
import sys
from math import isnan

from fedbench import tasks
from fedbench.tasks import mean_of


def test_the_mean_of_nothing_is_unknown():
    assert mean_of({"mse": (6.0, 4)}, "mse") == 1.5
    assert isnan(mean_of({}, "mse"))
    assert isnan(mean_of({"mse": (0.0, 0)}, "mse"))


def test_every_file_of_the_room_is_a_task_with_a_loss_among_its_metrics():
    assert tasks.names() == ["classification", "multilabel", "regression"]
    for name in tasks.names():
        task = tasks.load(name)
        assert task.name == name
        assert task.loss_metric in {metric.name for metric in task.metrics}
        assert task.primary is task.metrics[0]


def test_metrics_cost_no_torch():
    code = "import sys; from fedbench import tasks; tasks.load('regression'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
