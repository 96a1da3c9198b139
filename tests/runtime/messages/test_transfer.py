"""Tensors of messages between the device of a host and the CPU. In place of a GPU: the device without numbers."""

import torch

from fedbench.methods.messages import Message
from fedbench.runtime.messages.transfer import Sent, on_cpu, on_device

META = torch.device("meta")


def test_what_messages_of_an_order_share_is_copied_once_and_counters_stay():
    shared, sent = torch.arange(6.0), Sent()
    first = on_device(Message(params=shared, counters=torch.tensor([3])), META, sent)
    second = on_device(Message(params=shared, **{"own.counters": torch.tensor([4]), "part": shared[:3]}), META, sent)
    assert first.params is second.params
    assert first.params.device == second.part.device == META
    assert second.part.shape == (3,)
    assert first.counters.item() == 3
    assert second.tensors["own.counters"].item() == 4


def test_on_a_cpu_numbers_stay_the_same():
    numbers = torch.arange(9.0)
    found = on_device(Message(params=numbers[1:]), torch.device("cpu"), {})
    assert found.params.tolist() == numbers[1:].tolist()
    assert found.params.data_ptr() % 64 == 0


def test_what_stands_for_a_tensor_stays():
    message = Message(params=torch.arange(3.0))
    message.tensors["large"] = "a place"
    assert on_cpu(message).tensors["large"] == "a place"
    assert message.params.tolist() == [0, 1, 2]
