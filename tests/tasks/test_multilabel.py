"""Several labels at once."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from fedbench.tasks import mean_of
from fedbench.tasks.multilabel import TASK

STREAM = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(40, 4, generator=STREAM).round(decimals=1)
TARGETS = (torch.rand(40, 4, generator=STREAM) < 0.3).float()


def score(outputs: torch.Tensor, targets: torch.Tensor, size: int = 16) -> dict:
    return TASK.score(list(zip(outputs.split(size), targets.split(size), strict=True)), torch.float32)


@pytest.mark.parametrize("size", [7, 40])
def test_scores_are_those_of_scikit_learn_whatever_the_batches(size):
    found, true, predicted = score(OUTPUTS, TARGETS, size), TARGETS.numpy(), (OUTPUTS > 0).numpy()
    assert mean_of(found, "f1_macro") == pytest.approx(f1_score(true, predicted, average="macro"))
    assert mean_of(found, "average_precision") == pytest.approx(average_precision_score(true, OUTPUTS.numpy()))
    assert mean_of(found, "accuracy") == pytest.approx((true == predicted).mean())
    for label, value in enumerate(f1_score(true, predicted, average=None)):
        assert mean_of(found, f"f1_macro/label={label}") == pytest.approx(value)
    assert {weight for _, weight in found.values()} == {40}


def test_labels_whose_score_is_unknown_are_left_out_of_the_mean():
    targets, outputs = TARGETS.clone(), OUTPUTS.clone()
    targets[:, 1], outputs[:, 1] = 0, -1
    found, rest = score(outputs, targets), [0, 2, 3]
    assert "f1_macro/label=1" not in found
    assert mean_of(found, "f1_macro") == pytest.approx(mean_of(score(OUTPUTS[:, rest], TARGETS[:, rest]), "f1_macro"))
    assert set(score(-OUTPUTS.abs() - 1, torch.zeros(40, 4))) == {"accuracy", "loss"}


def test_the_loss_is_binary_cross_entropy_and_never_a_squared_error():
    expected = torch.nn.functional.binary_cross_entropy_with_logits(OUTPUTS, TARGETS)
    torch.testing.assert_close(TASK.loss(OUTPUTS, TARGETS), expected)
    assert mean_of(score(OUTPUTS, TARGETS), "loss") == pytest.approx(float(expected))
    assert TASK.loss(OUTPUTS, TARGETS, "none").shape == (40,)


def test_large_outputs_keep_their_order():
    outputs, targets = torch.tensor([[40.0], [50.0], [-1.0]]), torch.tensor([[0.0], [1.0], [0.0]])
    assert mean_of(score(outputs, targets), "average_precision") == 1


def test_outputs_that_are_no_numbers_predict_nothing():
    outputs = torch.full((3, 2), np.nan)
    assert mean_of(score(outputs, torch.tensor([[1.0, 0], [1, 0], [0, 1]])), "f1_macro") == 0
    assert mean_of(score(outputs, torch.zeros(3, 2)), "accuracy") == 0
