"""The metric of all validation samples together, which chooses where the mean over clients would not."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedbench.config import Config
from fedbench.results.reader import Records
from fedbench.runtime.evaluation.pooled_validation import PooledValidation, needs_pooling, pooled_message, pooled_score
from fedbench.runtime.exchange import Report
from fedbench.studies.run import run
from fedbench.tasks import load

AUROC = load("classification").with_metrics([], "auroc")


def part(scores: list[float], labels: list[int]) -> dict[str, torch.Tensor]:
    outputs = torch.tensor([[0.0, score] for score in scores])
    return dict(pooled_message([(outputs, torch.tensor(labels))]).tensors)


def test_the_value_is_that_of_all_samples_also_where_clients_have_one_class():
    parts = [part([0.1, 0.4], [0, 0]), part([0.3, 0.9], [1, 1])]
    assert pooled_score(AUROC, parts) == roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.3, 0.9]) == 0.75
    assert pooled_score(AUROC, parts[:1]) is None


@pytest.mark.parametrize(
    ("task", "expected"),
    [("classification", False), ("regression", False), ("segmentation", False), ("multilabel", True)],
)
def test_means_over_samples_need_no_pooling(task, expected):
    assert needs_pooling(load(task)) == expected
    assert needs_pooling(AUROC)
    assert needs_pooling(load("regression").with_metrics([], "r2"))
    assert not needs_pooling(load("classification").with_metrics(["auroc"]))  # it does not choose


def test_a_client_that_sits_out_counts_by_its_last_fit():
    held = PooledValidation(AUROC)
    for client, own in enumerate([([0.1, 0.4], [0, 1]), ([0.3, 0.9], [1, 1])]):
        report = Report(client, trained=True)
        report.validation["after_fit"] = pooled_message([(part(*own)["outputs"], part(*own)["targets"])])
        held.take([report])
    assert held.columns([], "fit", [0, 1]) == {"val_auroc": pooled_score(AUROC, [held.last_fit[0], held.last_fit[1]])}
    held.take([Report(1, trained=True)])  # a later fit whose scores are unknown
    assert held.columns([], "fit", [0, 1]) == {"val_auroc": 1.0}
    assert held.columns([], "after_agg", [0, 1]) == {}


def test_records_have_the_pooled_value_also_after_a_resume(tmp_path):
    def metrics(name: str, rounds: int = 2, **more):
        asked = Config(
            method="fedavg",
            model="mlp",
            rounds=rounds,
            participation=0.5,
            partition={"name": "pathological", "clients": 4, "classes": 1, "train_size": 40, "test_size": 20},
            evaluate={"metric": "auroc"},
            train={"epochs": 1},
            resources={"hosts": 0},
            out=tmp_path / name,
            checkpoint={"every": 1, "keep": True},
        )
        return Records(run(asked, report=False, **more).folder).metrics()

    whole = metrics("whole")
    assert whole["test_auroc"].isna().all(), "every client has one class"
    assert whole["val_auroc"].between(0, 1).all()
    assert not np.isclose(whole["val_auroc"], 0.5).all()
    metrics("lengthened", rounds=1)
    assert metrics("lengthened", resume=True)["val_auroc"].tolist() == whole["val_auroc"].tolist()
