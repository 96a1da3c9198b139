"""Further metrics of classification."""

from math import isnan

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics

from fedbench.errors import ConfigError, RunError
from fedbench.tasks import load, mean_of
from fedbench.tasks.further import auroc, balanced_accuracy, f1_macro, top5

RNG = np.random.default_rng(0)
SCORES, LABELS = RNG.normal(size=(60, 7)).astype(np.float32), RNG.integers(0, 7, 60)


def test_they_are_those_of_scikit_learn():
    predicted = SCORES.argmax(1)
    assert balanced_accuracy(SCORES, LABELS) == pytest.approx(
        sklearn_metrics.balanced_accuracy_score(LABELS, predicted)
    )
    assert f1_macro(SCORES, LABELS) == pytest.approx(sklearn_metrics.f1_score(LABELS, predicted, average="macro"))
    assert top5(SCORES, LABELS) == pytest.approx(sklearn_metrics.top_k_accuracy_score(LABELS, SCORES, k=5))
    shares = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    assert auroc(SCORES, LABELS) == pytest.approx(sklearn_metrics.roc_auc_score(LABELS, shares, multi_class="ovr"))
    two, few = SCORES[:, :2], LABELS % 2
    assert auroc(two, few) == pytest.approx(sklearn_metrics.roc_auc_score(few, two[:, 1] - two[:, 0]))


def test_a_client_with_some_classes_is_judged_by_those():
    labels = LABELS % 2
    assert balanced_accuracy(np.eye(7)[labels], labels) == 1
    assert balanced_accuracy(np.tile(np.eye(7)[0], (60, 1)), labels) == 0.5
    assert auroc(np.eye(7)[labels], labels) == 1
    assert isnan(auroc(SCORES, np.zeros(60, int)))


def test_scores_that_are_no_numbers_predict_nothing():
    nothing = np.full((4, 2), np.nan)
    assert balanced_accuracy(nothing, np.array([0, 1, 0, 1])) == f1_macro(nothing, np.array([0, 1, 0, 1])) == 0
    assert isnan(auroc(nothing, np.array([0, 1, 0, 1])))
    assert top5(nothing, np.array([0, 1, 0, 1])) == 0
    some, labels = np.array([[np.nan, 1], [1, 0], [0, 1], [0, 1]]), np.array([0, 0, 1, 1])
    assert f1_macro(some, labels) == pytest.approx((2 / 3 + 1) / 2)  # of the two classes that occur
    assert top5(some, labels) == 0.75


def fails(scores, labels):
    raise ValueError("my metric")


def gives_none(scores, labels):
    return None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fails", "fails: ValueError: my metric"),
        ("gives_none", "must return a number; it returned a value of type NoneType"),
    ],
)
def test_a_function_that_fails_is_named_with_its_line(name, text):
    task = load("classification", {"metrics": [f"{__name__}:{name}"]})
    with pytest.raises(RunError, match=text) as found:
        task.score_all([(torch.from_numpy(SCORES), torch.from_numpy(LABELS))], torch.float32)
    assert found.value.place.startswith("test_further.py:")


def test_a_function_of_other_arguments_is_refused():
    with pytest.raises(ConfigError, match=r"must take scores and labels: .* \(test_further.py:\d+\)"):
        load("classification", {"metrics": [f"{__name__}:test_they_are_those_of_scikit_learn"]})


def always_three(scores, labels):
    return 3.0


def test_a_task_is_judged_by_any_of_them():
    own = "tests.tasks.test_further:always_three"
    task = load("classification", {"metrics": ["f1_macro", own], "metric": "auroc"})
    assert [metric.name for metric in task.metrics] == ["auroc", "accuracy", "loss", "f1_macro", own]
    assert load("classification").metrics[0].name == "accuracy"
    batches = [(torch.from_numpy(SCORES[part]), torch.from_numpy(LABELS[part])) for part in (slice(25), slice(25, 60))]
    score = task.score_all(batches, torch.float32)
    assert score["auroc"] == pytest.approx((60 * auroc(SCORES, LABELS), 60))
    assert mean_of(score, own) == 3
    assert set(task.score_all([(batches[0][0], torch.zeros(25, dtype=torch.int64))], torch.float32)) == {
        "accuracy", "loss", "f1_macro", own,
    }  # fmt: skip


def clears_its_arguments(scores, labels):
    scores[:] = 0
    labels += 1
    return 0.0


def test_a_function_that_writes_into_its_arguments_changes_no_other_metric():
    outputs, targets = torch.from_numpy(SCORES.copy()), torch.from_numpy(LABELS.copy())
    task = load("classification", {"metrics": [f"{__name__}:clears_its_arguments", "balanced_accuracy"]})
    found = mean_of(task.score_all([(outputs, targets)], torch.float32), "balanced_accuracy")
    assert found == pytest.approx(balanced_accuracy(SCORES, LABELS))


def shape_of_difference(outputs, targets):
    return float((outputs - targets).size)


@pytest.mark.parametrize("task", ["regression", "binary"])
@pytest.mark.parametrize("shapes", [((6, 1), (6,)), ((6,), (6, 1)), ((6, 1), (6, 1)), ((6,), (6,))])
def test_outputs_and_targets_of_one_number_have_one_shape(task, shapes):
    outputs, targets = (torch.zeros(shape) for shape in shapes)
    asked = load(task, {"metrics": [f"{__name__}:shape_of_difference"]})
    assert mean_of(asked.score_all([(outputs, targets)], torch.float32), f"{__name__}:shape_of_difference") == 6


def share_missed(scores, labels):
    return float((scores.argmax(1) != labels).mean())


share_missed.higher_is_better = False


def odd_direction(scores, labels):
    return 0.0


odd_direction.higher_is_better = "no"


def test_a_function_says_which_values_are_better():
    missed = load("classification", {"metric": f"{__name__}:share_missed"}).primary
    assert not missed.higher
    assert missed.gain(0.1, 0.2) == pytest.approx(0.1)
    for place in ({"metrics": [f"{__name__}:odd_direction"]}, {"metric": f"{__name__}:odd_direction"}):
        with pytest.raises(ConfigError, match="higher_is_better = 'no': must be True or False"):
            load("classification", place)


def test_nothing_is_chosen_by_a_function_that_does_not_say_which_values_are_better():
    own = f"{__name__}:always_three"
    for evaluate in ({"metric": own}, {"metric": own, "metrics": [own]}):
        with pytest.raises(
            ConfigError, match=r"does not say whether higher is better; .*always_three.higher_is_better = False"
        ):
            load("classification", evaluate)
    (found,) = load("classification", {"metrics": [own]}).further
    assert not found.directed


@pytest.mark.parametrize(
    ("task", "name", "text"),
    [
        ("classification", "f1", "unknown metric 'f1'; known: auroc, balanced_accuracy"),
        ("regression", "auroc", "unknown metric 'auroc'; none is known for this task"),
        ("classification", "math:pi", "math:pi is not a function"),
    ],
)
def test_other_names_are_refused(task, name, text):
    with pytest.raises(ConfigError, match=text):
        load(task, {"metrics": [name]})


def needs_both(scores, labels):
    if len({*labels.tolist()}) < 2:
        raise ValueError("one class")
    return 0.5


def test_a_function_that_lacks_classes_of_a_client_is_unknown_there():
    (found,) = load("classification", {"metrics": ["tests.tasks.test_further:needs_both"]}).further
    scores = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert isnan(found.value(scores, np.array([1, 1, 1, 1])))
    assert found.value(scores, np.array([1, 2, 1, 1])) == 0.5
