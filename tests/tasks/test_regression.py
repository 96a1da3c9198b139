"""Regression: squared and absolute errors, and the share of the spread that is explained."""

import numpy as np
import pytest
import torch

from fedbench.tasks import mean_of
from fedbench.tasks.regression import TASK

STREAM = torch.Generator().manual_seed(0)
OUTPUTS, TARGETS = torch.randn(9, 1, generator=STREAM), torch.randn(9, generator=STREAM)


def score(outputs: torch.Tensor, targets: torch.Tensor, size: int = 4) -> dict:
    return TASK.score(list(zip(outputs.split(size), targets.split(size), strict=True)), torch.float32)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_scores_are_those_of_numpy_whatever_the_batches(size):
    found, x, y = score(OUTPUTS, TARGETS, size), OUTPUTS.numpy()[:, 0].astype(float), TARGETS.numpy().astype(float)
    assert mean_of(found, "mse") == pytest.approx(np.square(x - y).mean())
    assert mean_of(found, "mae") == pytest.approx(np.abs(x - y).mean())
    assert mean_of(found, "r2") == pytest.approx(1 - np.square(x - y).sum() / np.square(y - y.mean()).sum())
    assert {weight for _, weight in found.values()} == {9}


def test_targets_that_do_not_differ_leave_r2_unknown():
    assert set(score(OUTPUTS, torch.ones(9))) == {"mse", "mae"}


def test_outputs_may_have_one_dimension_or_two():
    assert score(OUTPUTS, TARGETS) == score(OUTPUTS[:, 0], TARGETS)
    assert torch.equal(TASK.loss(OUTPUTS, TARGETS), TASK.loss(OUTPUTS[:, 0], TARGETS))


def test_the_loss_is_the_mean_over_the_numbers_of_a_target():
    outputs, targets = torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    assert TASK.loss(outputs, targets, "none").tolist() == [5.0, 2.0]
    assert float(TASK.loss(outputs, targets)) == 3.5
    assert float(TASK.loss(outputs, targets, "sum")) == 7.0
    assert mean_of(score(outputs, targets), "mse") == 3.5
