"""Classification: accuracy and cross-entropy as sums with their weights."""

from math import isnan

import pytest
import torch
from torch.nn import functional

from fedbench.tasks.classification import TASK

OUTPUTS, TARGETS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2, 0])


def batches(*sizes: int):
    return list(zip(OUTPUTS.split(sizes), TARGETS.split(sizes), strict=True))


@pytest.mark.parametrize("sizes", [(7,), (3, 4), (1, 1, 5)])
def test_a_score_is_the_sum_over_samples_whatever_the_batches(sizes):
    score = TASK.score(batches(*sizes), torch.float32)
    assert score["accuracy"] == (int((OUTPUTS.argmax(1) == TARGETS).sum()), 7)
    total, weight = score["loss"]
    assert weight == 7
    assert total == pytest.approx(float(functional.cross_entropy(OUTPUTS.double(), TARGETS, reduction="sum")), rel=1e-6)


def test_accuracy_by_batches_is_the_mean_of_their_shares():
    shares = [float((x.argmax(1) == y).float().mean()) for x, y in batches(3, 4)]
    assert TASK.score(batches(3, 4), torch.float32, by_batches=True)["accuracy"] == (pytest.approx(sum(shares)), 2)


def test_outputs_that_are_not_numbers_are_never_correct():
    outputs = torch.tensor([[torch.nan, torch.nan], [torch.nan, 1.0], [3.0, 1.0]])
    score = TASK.score([(outputs, torch.tensor([0, 0, 0]))], torch.float32)
    assert score["accuracy"] == (1, 3)
    assert isnan(score["loss"][0])


def test_the_loss_is_cross_entropy():
    assert torch.equal(TASK.loss(OUTPUTS, TARGETS), functional.cross_entropy(OUTPUTS, TARGETS))
    assert TASK.loss(OUTPUTS, TARGETS, "none").shape == (7,)
