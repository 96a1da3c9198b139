"""Messages: tensors are read by name, and every field has the size of a real encoding."""

import copy
import pickle

import pytest
import torch

from fedbench.methods.messages import (
    Message,
    Upload,
    encoded,
    model_message,
    number_models,
    sparse,
    weights_of,
    zero_bytes,
)
from fedbench.module.weights import Weights

ROW = torch.arange(10.0)


@pytest.mark.parametrize(
    ("field", "nbytes"),
    [
        (ROW, 40),
        (ROW.double(), 80),
        (ROW > 3, 10),
        (torch.zeros(0), 0),
        (encoded(ROW > 3, bits=1), 2),
        (encoded(ROW, bits=2.5), 4),
        (sparse(ROW, 3), 12),
        (sparse(ROW.double(), 3), 24),
        (zero_bytes(ROW), 0),
        (zero_bytes(0.1), 0),
    ],
)
def test_a_field_has_the_bytes_of_its_encoding(field, nbytes):
    assert Message(field=field).nbytes == Message(other=ROW, field=field).nbytes - 40 == nbytes


def test_a_number_that_goes_with_a_message_keeps_its_digits():
    assert Message(rate=zero_bytes(0.1)).rate.item() == 0.1
    assert Message(row=zero_bytes(ROW)).row is ROW


def test_a_field_that_is_added_again_takes_the_place_of_the_first():
    message = Message(params=ROW)
    assert message.add(params=sparse(ROW * 2, 1), mask=encoded(ROW > 3, 1)) is message
    assert torch.equal(message.params, ROW * 2)
    assert message.nbytes == 4 + 2
    assert "mask" in message
    assert "buffers" not in message


def test_a_field_that_was_not_sent_is_an_error_that_says_what_was():
    with pytest.raises(AttributeError, match=r"the message has no field 'mask', only \['buffers', 'params'\]"):
        _ = Message(params=ROW, buffers=ROW).mask


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_a_copy_is_a_message_of_the_same_size(copied):
    upload = Upload(3, 7, traces={"x": 0.5}, params=sparse(ROW, 2), bits=encoded(ROW > 3, 1))
    found = copied(upload)
    assert (found.client, found.samples, found.traces) == (3, 7, {"x": 0.5})
    assert found.nbytes == upload.nbytes == 8 + 2
    assert torch.equal(found.params, ROW)


def test_a_model_travels_whole_and_its_counters_are_not_counted():
    weights = Weights(ROW, ROW[:2], torch.ones(1, dtype=torch.int64))
    message = model_message(**vars(weights), rate=zero_bytes(0.5))
    found = weights_of(message)
    assert all(torch.equal(a, b) for a, b in zip(vars(found).values(), vars(weights).values(), strict=True))
    assert message.nbytes == 40 + 8
    assert message.rate == 0.5


def test_models_travel_under_names_of_their_own():
    one, two = (Weights(ROW * k, ROW[:2], torch.ones(1, dtype=torch.int64)) for k in (1, 2))
    message = Message(**number_models("model", [one, two]), old=one)
    assert message.nbytes == 3 * 48
    assert torch.equal(message.old.params, ROW)
    assert [float(model.params[1]) for model in message.models("model")] == [1.0, 2.0]
    assert torch.equal(message.model1.counters, one.counters)
    assert "model1" in message
    assert "model2" not in message
    assert message.models("other") == []
