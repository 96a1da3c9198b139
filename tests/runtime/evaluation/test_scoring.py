"""What a host keeps of the models that it evaluates."""

import pytest
import torch

from fedbench.jobs.resolve import resolve
from fedbench.results.schema import COMMON
from fedbench.runtime.exchange import ClientTask, Order, Report
from fedbench.runtime.host import Host
from tests.runtime.rounds import driver, small


def report_of(config, **more) -> Report:
    resolved = resolve(config)
    run = driver(resolved)
    task = ClientTask(3, run.method.send(run.server, 3), after_agg=True, **more)
    (report,) = Host.of(run.setup, resolved).work(Order(0, [task])).reports
    assert report.failure is None
    return report


@pytest.mark.parametrize("keep", [(), ("after_agg",)])
@pytest.mark.parametrize("outcomes", [(), ("after_agg",)])
def test_models_predictions_and_outcomes_are_those_that_the_task_names(keep, outcomes):
    report = report_of(small(save_models=True, save_predictions=True), keep=keep, outcomes=outcomes)
    assert report.scores.keys() == {"after_agg"}
    assert tuple(report.models) == tuple(report.predictions) == keep
    assert tuple(report.outcomes) == outcomes
    assert not report.validation


def test_outputs_are_those_of_the_tests_and_give_the_score():
    report = report_of(small(save_predictions=True), keep=("after_agg",))
    kept = report.predictions["after_agg"]
    correct = int((kept.outputs.argmax(1) == kept.targets).sum())
    assert report.scores["after_agg"]["test"]["accuracy"] == (correct, len(kept.rows))
    assert len(torch.unique(kept.rows)) == len(kept.rows)


def test_validation_outputs_are_sent_where_the_metric_is_no_mean_over_samples():
    report = report_of(small(evaluate={"metric": "auroc"}))
    assert len(report.validation["after_agg"].targets) > 0
    assert "auroc" in report.scores["after_agg"]["test"]


def test_a_loss_of_another_model_is_that_of_groups_and_the_common_test_too():
    """FedProto predicts by prototypes; its loss is the model's, as where the model predicts."""
    evaluate = {"common_test": True, "metric": "loss", "by": ["class"]}
    by_prototypes, by_model = (
        after_a_round(small("fedproto", method__predictor=predictor, evaluate=evaluate))
        for predictor in ("prototype", "model")
    )
    for split in ("test", COMMON):
        losses = [name for name in by_model[split] if name.partition("/")[0] == "loss"]
        assert len(losses) > (split == "test")
        assert {name: by_prototypes[split][name] for name in losses} == {name: by_model[split][name] for name in losses}
    assert by_prototypes["test"]["accuracy"] != by_model["test"]["accuracy"]


def after_a_round(config):
    """The scores of client 3 after aggregation of the first round."""
    resolved = resolve(config)
    run = driver(resolved)
    host = Host.of(run.setup, resolved)
    tasks = [ClientTask(client, run.method.send(run.server, client), train=True) for client in range(10)]
    run.method.aggregate(run.server, [report.upload for report in host.work(Order(0, tasks)).reports])
    run.server.round = 1
    task = ClientTask(3, run.method.send(run.server, 3), kept=1, after_agg=True)
    (report,) = host.work(Order(1, [task])).reports
    assert report.failure is None
    return report.scores["after_agg"]
