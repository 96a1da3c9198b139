"""self.log without a Trainer: means by batch size, metric objects, what a scheduler can monitor."""

import pytest
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from fedbench.module.logs import Logs


@pytest.fixture
def logs() -> Logs:
    made = Logs()
    made.in_step = True
    return made


def test_a_mean_over_an_epoch_is_weighted_by_batch_sizes(logs):
    for size, value in ((1, 1.0), (3, 5.0)):
        logs.batch_size = size
        logs.log("loss", torch.tensor(value), on_epoch=True)
    assert logs.end_epoch() == {"loss": 4.0}
    assert logs.entries == {}


def test_what_is_logged_in_a_pass_is_collected_apart_even_where_logs_are_silent(logs):
    logs.log("loss", 2.0, on_epoch=True)
    with logs.silence():
        with logs.capture() as values:
            for size, value in ((1, 1.0), (3, 5.0)):
                logs.batch_size = size
                logs.log("loss", value)
        logs.log("loss", 9.0)
    assert values == {"loss": 4.0}
    assert logs.end_epoch() == {"loss": 2.0}
    with pytest.raises(ValueError), logs.capture():
        raise ValueError
    assert logs.in_step


@pytest.mark.parametrize(("reduce_fx", "expected"), [("sum", 6.0), ("max", 5.0), ("min", 1.0), (torch.prod, 5.0)])
def test_other_reductions(logs, reduce_fx, expected):
    for value in (1.0, 5.0):
        logs.log("x", value, on_epoch=True, reduce_fx=reduce_fx)
    assert logs.end_epoch() == {"x": expected}


def test_a_scheduler_sees_the_step_and_at_the_end_the_epoch(logs):
    logs.log("loss", 1.0, on_step=True, on_epoch=True)
    logs.log("loss", 3.0, on_step=True, on_epoch=True)
    assert {k: float(v) for k, v in logs.callback_metrics().items()} == {"loss": 3.0, "loss_step": 3.0}
    logs.in_step = False
    seen = {k: float(v) for k, v in logs.callback_metrics().items()}
    assert seen == {"loss": 2.0, "loss_step": 3.0, "loss_epoch": 2.0}


def test_metric_objects_are_computed_and_reset(logs):
    metrics = MetricCollection({"accuracy": MulticlassAccuracy(2, average="micro")})
    metrics(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]))
    logs.log_dict(metrics, on_step=False, on_epoch=True)
    assert logs.end_epoch() == {"accuracy": 0.75}
    assert not metrics["accuracy"].update_called


def test_what_is_logged_in_silence_is_dropped(logs):
    with logs.silence():
        logs.log("loss", 1.0)
    assert logs.entries == {}


def test_another_client_starts_with_nothing(logs):
    logs.log("loss", 1.0, on_epoch=True)
    logs.end_epoch()
    logs.clear()
    assert logs.callback_metrics() == {}
