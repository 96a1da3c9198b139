"""Classes of torchmetrics as metrics of a task."""

from math import isnan

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
from torchmetrics import Metric as TorchMetric
from torchmetrics import classification, regression
from torchmetrics.classification import MulticlassJaccardIndex, MulticlassRecall

from fedbench.errors import ConfigError, RunError
from fedbench.tasks import load
from fedbench.tasks.further import balanced_accuracy
from fedbench.tasks.metric_classes import bounds_of, function_of

STREAM = np.random.default_rng(0)
SCORES = STREAM.normal(size=(50, 4)).astype(np.float32)
CLASSES = STREAM.integers(0, 4, 50)
BITS = (SCORES > 0.2).astype(float)


def value(task, name, outputs, targets):
    (found,) = load(task, {"metrics": [name]}).further
    return found.value(outputs, targets)


def shares():
    powers = np.exp(SCORES.astype(float))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("task", "name", "outputs", "targets", "right"),
    [
        (
            "classification",
            "torchmetrics.classification:MulticlassCohenKappa",
            SCORES,
            CLASSES,
            sklearn_metrics.cohen_kappa_score(CLASSES, SCORES.argmax(1)),
        ),
        (
            "classification",
            "torchmetrics.classification:MulticlassAUROC",
            SCORES / 1000 + 0.5,  # between 0 and 1, and still no probabilities
            CLASSES,
            sklearn_metrics.roc_auc_score(CLASSES, shares(), multi_class="ovr"),
        ),
        (
            "binary",
            "torchmetrics.classification:BinaryMatthewsCorrCoef",
            SCORES[:, :1],
            BITS[:, 1],
            sklearn_metrics.matthews_corrcoef(BITS[:, 1], SCORES[:, 0] > 0),
        ),
        (
            "multilabel",
            "torchmetrics.classification:MultilabelHammingDistance",
            SCORES,
            BITS,
            sklearn_metrics.hamming_loss(BITS, SCORES > 0),
        ),
        (
            "regression",
            "torchmetrics:MeanAbsoluteError",
            SCORES[:, :1],
            SCORES[:, 1],
            np.abs(SCORES[:, 0] - SCORES[:, 1]).mean(),
        ),
    ],
)
def test_a_value_is_that_of_another_library(task, name, outputs, targets, right):
    assert value(task, name, outputs, targets) == pytest.approx(right, abs=2e-3 if "AUROC" in name else 1e-6)


def test_which_direction_is_better_is_the_class_s_own():
    (found,) = load("regression", {"metrics": ["torchmetrics:R2Score"]}).further
    assert found.metric.higher
    (found,) = load("regression", {"metrics": ["torchmetrics:MeanAbsoluteError"]}).further
    assert not found.metric.higher


def test_it_is_unknown_for_outputs_that_are_not_finite():
    assert isnan(value("regression", "torchmetrics:MeanAbsoluteError", np.full((3, 1), np.nan, "f"), np.zeros(3)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torchmetrics:F1Score", r"F1Score cannot be made from the number of classes alone .*MulticlassF1Score"),
        ("torchmetrics.classification:MulticlassConfusionMatrix", r"does not say whether higher is better"),
    ],
)
def test_a_class_that_is_no_single_number_or_needs_arguments_is_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        load("classification", {"metrics": [name]})


class EachClass(MulticlassRecall):
    """One number for each class."""

    def __init__(self, num_classes):
        super().__init__(num_classes, average=None)


def test_several_numbers_are_refused():
    with pytest.raises(RunError, match="must return a number"):
        value("classification", "tests.tasks.test_metric_classes:EachClass", SCORES, CLASSES)


@pytest.mark.parametrize("present", [[0, 1, 2, 3], [0, 1], [2], [0, 3]])
def test_means_over_classes_are_over_those_that_a_client_has(present):
    rows = np.isin(CLASSES, present)
    own, name = (SCORES[rows], CLASSES[rows]), "torchmetrics.classification:Multiclass{}"
    assert value("classification", name.format("Accuracy"), *own) == pytest.approx(balanced_accuracy(*own))
    area = value("classification", name.format("AUROC"), *own)
    one_against_all = [
        sklearn_metrics.roc_auc_score(own[1] == label, probabilities(own[0])[:, label])
        for label in (present if len(present) > 1 else [])
    ]
    assert isnan(area) if len(present) == 1 else area == pytest.approx(np.mean(one_against_all), abs=1e-6)


def probabilities(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(float))
    return powers / powers.sum(1, keepdims=True)


def test_what_torchmetrics_calls_meaningless_is_unknown_and_not_warned_of(recwarn):
    name = "torchmetrics.classification:{}"
    assert isnan(value("multilabel", name.format("MultilabelAUROC"), SCORES, np.zeros_like(BITS)))
    assert isnan(value("classification", name.format("BinaryAUROC"), SCORES[:, :2], np.ones(50, int)))
    assert not recwarn.list
    some = BITS * [1, 1, 0, 1]
    expected = np.mean([sklearn_metrics.roc_auc_score(BITS[:, own], SCORES[:, own]) for own in (0, 1, 3)])
    assert value("multilabel", name.format("MultilabelAUROC"), SCORES, some) == pytest.approx(expected, abs=1e-6)


def test_a_metric_of_two_classes_gets_the_score_of_the_second():
    scores, labels = SCORES[:, :2], (CLASSES > 1).astype(int)
    found = value("classification", "torchmetrics.classification:BinaryAUROC", scores, labels)
    assert found == pytest.approx(sklearn_metrics.roc_auc_score(labels, scores[:, 1] - scores[:, 0]), abs=1e-6)


def test_a_metric_that_needs_more_samples_than_a_client_has_is_unknown_there():
    name = "torchmetrics.regression:R2Score"
    assert isnan(value("regression", name, SCORES[:1, :1], SCORES[:1, 1]))
    expected = sklearn_metrics.r2_score(SCORES[:, 1], SCORES[:, 0])
    assert value("regression", name, SCORES[:, :1], SCORES[:, 1]) == pytest.approx(expected, abs=1e-4)


THREE = np.arange(60) % 3
ONE_HOT = np.eye(3, dtype=np.float32)[THREE]
TARGETS = {"Multiclass": THREE, "Multilabel": ONE_HOT.astype(int), "Binary": ONE_HOT[:, 0].astype(int)}
NUMBERS = STREAM.normal(size=(60, 1)).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", [classification, regression])
def test_values_lie_between_the_bounds_of_their_class(module):
    """Of right, opposite, random and constant outputs; those of its plots are others for a few classes."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, TorchMetric)]
    known = 0
    for kind in kinds:
        task = next((begin for begin in TARGETS if kind.__name__.startswith(begin)), None)
        targets = NUMBERS if module is regression else TARGETS.get(task)
        right = 4 * ONE_HOT[:, 0] if task == "Binary" else NUMBERS if task is None else 4 * ONE_HOT
        noise = STREAM.normal(size=right.shape).astype(np.float32)
        for outputs in (right + 0.1 * noise, -right, 3 * noise, 0 * right + 1):
            try:
                found = float(function_of(kind)(outputs, targets))
            except Exception:
                break  # a curve, or one with arguments of its own
            least, most = bounds_of(kind)
            known += 1
            assert isnan(found) or (least is None or found >= least - 1e-6), kind
            assert isnan(found) or (most is None or found <= most + 1e-6), kind
    assert known > 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["F1Score", "Recall", "Precision", "JaccardIndex", "AveragePrecision"])
def test_a_client_without_positives_in_targets_and_outputs_has_no_value(name):
    metric = f"torchmetrics.classification:Binary{name}"
    outputs = np.array([[-2.0], [-1.0], [-3.0]], np.float32)
    assert isnan(value("binary", metric, outputs, np.zeros(3)))
    assert value("binary", metric, -outputs, np.ones(3)) == 1
    assert value("binary", metric, outputs, np.array([0.0, 0.0, 1.0])) < 0.5


def test_large_scores_that_differ_are_no_ties():
    outputs = np.array([[20.0], [25.0], [30.0], [35.0]], np.float32)
    labels = np.array([0.0, 0.0, 1.0, 1.0])
    for name in ("BinaryAUROC", "BinaryAveragePrecision"):
        assert value("binary", f"torchmetrics.classification:{name}", outputs, labels) == 1


@pytest.mark.parametrize("task", ["next-token", "segmentation"])
def test_classes_do_not_know_which_positions_count(task):
    with pytest.raises(ConfigError, match="does not know which positions of a target count"):
        load(task, {"metrics": ["torchmetrics.classification:MulticlassJaccardIndex"]})


class CountsPixels(MulticlassJaccardIndex):
    """Of all classes together; pixels of 255 do not count."""

    def __init__(self, num_classes):
        super().__init__(num_classes, average="micro", ignore_index=255)


def test_a_class_that_leaves_positions_out_is_taken():
    masks = np.array([[[0, 1], [255, 1]]])
    outputs = np.zeros((1, 2, 2, 2), np.float32)
    outputs[0, 1] = [[-1, 1], [1, -1]]  # class 1 where positive
    name = "tests.tasks.test_metric_classes:CountsPixels"
    assert value("segmentation", name, outputs, masks) == pytest.approx(2 / 4)  # of 0: 1 of 2, of 1: 1 of 2
