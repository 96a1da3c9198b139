"""What is not finite of a client's result is named, with what to lower."""

import math

import pytest
import torch

from fedbench.config import TrainConfig
from fedbench.engine.learner import Learner
from fedbench.methods.messages import Message, Upload
from fedbench.runtime.clients.finite import rate_name, what_diverged, what_is_not_finite
from tests.engine.conftest import Net


@pytest.fixture
def learner() -> Learner:
    return Learner(Net(), TrainConfig(), optimizer="sgd")


def upload_of(learner: Learner, **fields: torch.Tensor) -> Upload:
    trained = learner.initial()
    upload = Upload(0, 1, params=trained.params, **fields)
    upload.trained = trained
    return upload


def test_a_finite_result(learner):
    assert what_diverged(upload_of(learner), learner) is None


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_a_loss_comes_first(loss, learner):
    learner.ledger.add(torch.tensor(loss))
    upload = upload_of(learner)
    upload.trained.params[0] = math.nan
    assert what_diverged(upload, learner) == f"the training loss became {loss}: lower train.lr"


def test_then_the_model_and_then_what_else_is_sent(learner):
    upload = upload_of(learner, control=torch.tensor([1.0, math.inf]))
    assert what_diverged(upload, learner) == "the upload's control holds values that are not finite"
    upload.trained.params[2] = -math.inf
    assert what_diverged(upload, learner) == "the trained model holds values that are not finite: lower train.lr"


def test_a_model_with_an_optimiser_of_its_own_names_its_place(learner):
    learner.ledger.own_rate = True
    assert rate_name(learner) == "train.lr_scale, or the rate in Net.configure_optimizers"


def test_a_constant_buffer_may_be_infinite_and_a_large_sum_overflow():
    large = torch.full((4,), 3e38)
    assert (
        what_is_not_finite(Message(buffers=torch.tensor([math.inf, 1.0]), counters=torch.tensor([1])), "answer") is None
    )
    assert what_is_not_finite(Message(buffers=torch.tensor([math.nan])), "answer") is not None
    assert what_is_not_finite(Message(none=torch.zeros(0)), "answer") is None
    assert what_is_not_finite(Message(large=large.double()), "answer") is None


def test_a_batch_of_one_sample_is_named(learner):
    learner.ledger.add(torch.tensor(math.nan))
    size = learner.train.batch_size
    assert "became nan, perhaps in a batch of 1 sample" in what_diverged(upload_of(learner), learner, 2 * size + 1)
    assert "batch of 1" not in what_diverged(upload_of(learner), learner, 2 * size)
