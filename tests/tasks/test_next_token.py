"""The token that comes next."""

from math import exp, log, nan

import numpy as np
import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.tasks import mean_of
from fedbench.tasks.next_token import IGNORED, TASK
from fedbench.tasks.targets import TargetError

SURE = torch.tensor([0.5, 0.25, 0.25]).log()
"""Scores with these probabilities."""
OUTPUTS = SURE.expand(2, 3, 3)
TARGETS = torch.tensor([[0, 1, IGNORED], [0, IGNORED, IGNORED]])


def test_scores_on_paper():
    score = TASK.score([(OUTPUTS[:1], TARGETS[:1]), (OUTPUTS[1:], TARGETS[1:])], torch.float32)
    loss = (2 * log(2) + log(4)) / 3  # of three tokens
    assert {weight for _, weight in score.values()} == {3}
    assert mean_of(score, "loss") == pytest.approx(loss)
    assert mean_of(score, "perplexity") == pytest.approx(exp(loss))
    assert mean_of(score, "token_accuracy") == pytest.approx(2 / 3)


def test_the_loss_is_the_mean_over_tokens_that_count():
    assert float(TASK.loss(OUTPUTS, TARGETS)) == pytest.approx((2 * log(2) + log(4)) / 3)
    each = [(log(2) + log(4)) / 2, log(2)]
    assert TASK.loss(OUTPUTS, TARGETS, "none").tolist() == pytest.approx(each)
    assert float(TASK.loss(OUTPUTS, TARGETS, "sum")) == pytest.approx(sum(each))


def test_where_no_token_counts_the_loss_moves_nothing_and_nothing_is_scored():
    outputs, nothing = OUTPUTS.clone().requires_grad_(), torch.full_like(TARGETS, IGNORED)
    TASK.loss(outputs, nothing).backward()
    assert outputs.grad.abs().sum() == 0
    assert TASK.score([(outputs, nothing)], torch.float32) == {}


def test_outputs_that_are_no_numbers_predict_nothing():
    score = TASK.score([(torch.full((1, 3, 3), nan), TARGETS[:1])], torch.float32)
    assert mean_of(score, "token_accuracy") == 0


def test_targets_are_tokens_or_do_not_count():
    found = TASK.read_targets(np.array([[4, 1, -100], [0, 2, -100]], np.int16))
    assert (found.outputs, found.classes, found.values.shape) == (5, 0, (2, 3))
    assert TASK.read_targets(np.array([[4, 1]]), classes=50).outputs == 50
    with pytest.raises(TargetError, match="target token 4: 0 to 3 are tokens, -100 does not count") as caught:
        TASK.read_targets(np.array([[0, 1], [4, 1]]), classes=4)
    assert caught.value.row == 1
    with pytest.raises(ConfigError, match=r"these are float64 \[1\]"):
        TASK.read_targets(np.zeros((2, 1)))


def test_inputs_as_targets_are_refused_and_shifted_ones_are_not():
    tokens = np.array([[3, 1, 2, 0], [2, 2, 1, 0]])
    masked = np.where(tokens == 0, IGNORED, tokens)
    shifted = np.concatenate([tokens[:, 1:], np.full((2, 1), IGNORED)], axis=1)
    assert "give each position the token after it" in TASK.refusal(tokens, tokens)
    assert "give each position the token after it" in TASK.refusal(tokens, masked)
    assert TASK.refusal(tokens, shifted) is None


def test_tokens_before_the_inputs_are_refused_as_targets():
    tokens = np.random.default_rng(0).integers(0, 9, (6, 8))
    assert "which the model has seen" in TASK.refusal(tokens[:, 1:], tokens[:, :-1])
    assert TASK.refusal(tokens[:, :-1], tokens[:, 1:]) is None


def test_a_token_that_ends_many_rows_is_named():
    targets = np.array([[3, 1, 0, 0], [2, 0, 0, 0], [1, 2, 3, 0]])
    (line,) = TASK.read_targets(targets).remarks
    assert line == ("target token 0 ends 2 of 3 rows, 6 times in all, and counts; if it is padding, give -100 there")
    assert TASK.read_targets(np.where(targets == 0, IGNORED, targets)).remarks == ()
    assert TASK.read_targets(targets[:, :2]).remarks == ()
