"""One logit against 0 or 1."""

from math import isnan, log, nan

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics

from fedbench.errors import ConfigError
from fedbench.tasks import load, mean_of
from fedbench.tasks.binary import TASK

STREAM = torch.Generator().manual_seed(0)
LOGITS, TARGETS = torch.randn(40, 1, generator=STREAM), (torch.rand(40, generator=STREAM) < 0.4).long()


def test_scores_on_paper():
    logits, targets = torch.tensor([[0.0], [2.0], [-1.0], [nan]]), torch.tensor([0, 1, 1, 0])
    score = TASK.score([(logits[:2], targets[:2]), (logits[2:], targets[2:])], torch.float32)
    assert score["accuracy"] == (2, 4)  # a logit of 0 is class 0; nan is wrong
    by_batches = TASK.score([(logits[:3], targets[:3]), (logits[3:], targets[3:])], torch.float32, by_batches=True)
    assert by_batches["accuracy"] == (pytest.approx(2 / 3), 2)
    assert float(TASK.loss(torch.zeros(2), torch.tensor([0, 1]))) == pytest.approx(log(2))


@pytest.mark.parametrize("shape", [(40, 1), (40,)])
@pytest.mark.parametrize("kind", [torch.int64, torch.float32])
def test_scores_are_those_of_scikit_learn(shape, kind):
    task = load("binary", {"metrics": ["auroc", "f1", "average_precision"]})
    score = task.score_all([(LOGITS.view(shape), TARGETS.to(kind))], torch.float32)
    true, given = TARGETS.numpy(), LOGITS.view(-1).numpy()
    assert mean_of(score, "accuracy") == pytest.approx(sklearn_metrics.accuracy_score(true, given > 0))
    assert mean_of(score, "auroc") == pytest.approx(sklearn_metrics.roc_auc_score(true, given))
    assert mean_of(score, "f1") == pytest.approx(sklearn_metrics.f1_score(true, given > 0))
    assert mean_of(score, "average_precision") == pytest.approx(sklearn_metrics.average_precision_score(true, given))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(LOGITS.view(-1), TARGETS.float())
    assert mean_of(score, "loss") == pytest.approx(float(expected))


def test_what_one_class_alone_leaves_unknown():
    task = load("binary", {"metrics": ["auroc", "f1", "average_precision"]})
    score = task.score_all([(-torch.ones(3, 1), torch.zeros(3))], torch.float32)
    assert set(score) == {"accuracy", "loss"}
    assert isnan(mean_of(score, "auroc"))


@pytest.mark.parametrize(
    ("brought", "kind", "names"),
    [
        ([0, 1, 1], np.int64, ()),
        ([0.0, 1.0, 1.0], np.float64, ()),
        ([False, True, True], np.int64, ("False", "True")),
        (["ill", "well", "well"], np.int64, ("ill", "well")),
        ([-1, 1, 1], np.int64, ("-1", "1")),
    ],
)
def test_two_classes_are_read_in_any_form_and_floats_stay_floats(brought, kind, names):
    found = TASK.read_targets(np.array(brought))
    assert (found.values.tolist(), found.values.dtype, found.classes) == ([0, 1, 1], kind, 0)
    assert found.names == names


@pytest.mark.parametrize("brought", [[0, 1, 2], [1, 1, 1]])
def test_other_numbers_of_classes_are_refused(brought):
    with pytest.raises(ConfigError, match=f"two classes are needed, the targets have {len(set(brought))}"):
        TASK.read_targets(np.array(brought))


def test_the_class_that_is_1_is_named_where_classes_have_names():
    (line,) = TASK.read_targets(np.array(["ill", "well"])).remarks
    assert line == "well is 1, the class of which F1 and average precision are"
    assert TASK.read_targets(np.array([0, 1])).remarks == ()
