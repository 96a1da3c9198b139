"""Outcomes of samples are their values, or pseudo-values that follow from scores without each sample."""

import numpy as np
import pytest
import torch

from fedbench import tasks
from fedbench.tasks.outcomes import BLOCKS, auroc_without, average_precision_without, block_of, by_blocks
from fedbench.tasks.task import mean_of

COUNT = 23


def drawn(*shape: int, number: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(number))


def some(share: float, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)) < share


def classes_with_a_single_one() -> torch.Tensor:
    targets = torch.randint(0, 5, (COUNT,), generator=torch.Generator().manual_seed(2))
    targets[3] = 5
    return targets


ONE = torch.zeros(COUNT, dtype=torch.int64).index_fill(0, torch.tensor([4]), 1)
BINARY = ["auroc", "f1", "average_precision"]
CASES = {
    "classes": (
        ("classification", ["auroc", "f1_macro", "balanced_accuracy", "top5"]),
        drawn(COUNT, 6).round(decimals=1),
        classes_with_a_single_one(),
    ),
    "two classes": (("classification", ["auroc"]), drawn(COUNT, 2), some(0.5, COUNT).long()),
    "one of class 1": (("classification", ["auroc"]), drawn(COUNT, 2), ONE),
    "binary": (("binary", BINARY), drawn(COUNT, 1).round(decimals=1), some(0.3, COUNT).long()),
    "one positive": (("binary", BINARY), drawn(COUNT, 1).round(decimals=1), ONE),
    "labels": (("multilabel", []), drawn(COUNT, 4), some(0.2, COUNT, 4).float()),
    "numbers": (("regression", []), drawn(COUNT, 2), drawn(COUNT, 2, number=1)),
    "one number": (("regression", []), drawn(COUNT, 1), drawn(COUNT, number=1)),
    "tokens": (
        ("next-token", []),
        drawn(COUNT, 4, 5),
        torch.randint(0, 5, (COUNT, 4), generator=torch.Generator().manual_seed(3)).masked_fill(
            some(0.3, COUNT, 4), -100
        ),
    ),
    "masks": (
        ("segmentation", []),
        drawn(COUNT, 4, 3, 3),
        torch.randint(-1, 4, (COUNT, 3, 3), generator=torch.Generator().manual_seed(4)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_what_leaving_out_each_sample_gives(name):
    (kind, more), outputs, targets = CASES[name]
    task = tasks.load(kind, {"metrics": more})
    batches = [(outputs[:7], targets[:7]), (outputs[7:], targets[7:])]
    found, shared = task.outcomes_all(batches, torch.float64, np.arange(COUNT))
    assert (sorted(found), shared) == (sorted(metric.name for metric in task.metrics), {})
    whole = task.score_all(batches, torch.float64)
    others = [torch.arange(COUNT)[torch.arange(COUNT) != own] for own in range(COUNT)]
    without = [task.score_all([(outputs[own], targets[own])], torch.float64) for own in others]
    for metric, values in found.items():
        expected = COUNT * mean_of(whole, metric) - (COUNT - 1) * np.array([mean_of(own, metric) for own in without])
        np.testing.assert_allclose(values, expected, atol=1e-5, err_msg=metric)


def test_those_of_means_over_batches_have_the_mean_over_batches():
    outputs, targets = drawn(COUNT, 6), classes_with_a_single_one()
    batches = list(zip(outputs.split(10), targets.split(10), strict=True))
    task = tasks.load("classification")
    found, _ = task.outcomes_all(batches, torch.float64, np.arange(COUNT), by_batches=True)
    assert found["accuracy"].mean() == pytest.approx(
        mean_of(task.score(batches, torch.float64, by_batches=True), "accuracy")
    )


def spread_of_scores(scores, labels):
    return scores[:, 0].std()


spread_of_scores.higher_is_better = True


def test_a_function_is_computed_without_each_block_and_only_if_it_is_the_primary_metric():
    outputs, targets, name = drawn(COUNT, 2), some(0.5, COUNT).long(), f"{__name__}:spread_of_scores"
    blocks = np.arange(COUNT) // 4
    found, shared = tasks.load("classification", {"metric": name}).outcomes_all(
        [(outputs, targets)], torch.float64, blocks
    )
    values, all_ = shared[name], outputs[:, 0].numpy()
    own = blocks == 2
    expected = all_.std() + (all_.std() - all_[~own].std()) * (COUNT - 4) / 4
    assert values[own] == pytest.approx([expected] * 4, rel=1e-5)
    assert name not in found
    assert (
        tasks.load("classification", {"metrics": [name]}).outcomes_all([(outputs, targets)], torch.float64, blocks)[1]
        == {}
    )


def test_block_outcomes_of_a_mean_are_the_means_of_blocks():
    values, blocks = np.array([1.0, 3.0, 8.0, 0.0, 1.0]), np.array([0, 0, 1, 2, 2])
    found = by_blocks(lambda places: float(values[places].mean()), blocks)
    assert found == pytest.approx([2, 2, 8, 0.5, 0.5])
    assert np.isnan(by_blocks(lambda places: 1.0, np.zeros(3))).all(), "without the only block there is no score"


def test_the_only_positive_sample_has_no_outcome():
    scores, positive = np.array([0.1, 0.9, 0.3]), np.array([False, True, False])
    assert np.isnan(auroc_without(scores, positive)[1]).tolist() == [False, True, False]
    assert np.isnan(average_precision_without(scores, positive)[1]).tolist() == [False, True, False]


def test_a_row_has_the_same_block_everywhere_and_blocks_are_about_even():
    blocks = block_of(np.arange(6400))
    assert (blocks.min(), blocks.max()) == (0, BLOCKS - 1)
    assert np.bincount(blocks).max() < 2 * 6400 / BLOCKS
    assert block_of(np.array([77, 5])).tolist() == blocks[[77, 5]].tolist()


class TwiceTheAccuracy(type(tasks.load("classification"))):
    def score(self, batches, dtype, by_batches=False):
        score = super().score(batches, dtype, by_batches)
        return score | {"accuracy": (2 * score["accuracy"][0], score["accuracy"][1])}


def test_a_score_of_the_users_own_is_not_given_the_outcomes_of_another():
    outputs, targets = drawn(COUNT, 6), classes_with_a_single_one()
    found, shared = TwiceTheAccuracy().outcomes_all([(outputs, targets)], torch.float64, np.arange(COUNT))
    right = (outputs.argmax(1) == targets).double().numpy()
    assert found == {}
    assert shared["accuracy"] == pytest.approx(2 * right)
