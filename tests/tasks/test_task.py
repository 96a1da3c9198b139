"""What metrics look like, and in which direction they count."""

import subprocess
import sys
from math import isnan

import pytest

from fedbench import tasks
from fedbench.tasks import Metric, mean_of

SHARE, ERROR = Metric("accuracy", "accuracy", share=True), Metric("mse", "mean squared error", higher=False)


def test_shares_are_shown_in_percent_and_other_numbers_with_three_digits():
    assert (SHARE.shown(0.8421), SHARE.number(0.8421), SHARE.title) == ("84.2\u00a0%", "84.2", "accuracy, %")
    assert (ERROR.shown(0.57349), ERROR.number(12345.0), ERROR.title) == ("0.573", "1.23e+04", "mean squared error")


def test_differences_have_a_sign():
    assert (SHARE.difference(0.034), SHARE.difference(-0.034)) == ("+3.4", "\u22123.4")
    assert SHARE.difference(-0.0001) == "+0.0"
    assert ERROR.difference(-0.0123) == "\u22120.0123"


def test_a_gain_is_above_zero_where_ours_is_better():
    assert SHARE.gain(0.8, 0.7) == pytest.approx(0.1)
    assert ERROR.gain(0.5, 0.7) == pytest.approx(0.2)


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
