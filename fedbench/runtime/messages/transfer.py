"""Messages between a host's device and the CPU, where they travel."""

from typing import Any

import torch
from torch import Tensor

from fedbench.methods.messages import Message
from fedbench.runtime.states import trees

Sent = dict[tuple[Any, ...], tuple[Tensor, Tensor]]
"""Tensors of an order and their copies on the device, by their place in memory."""


def on_device(message: Message, device: torch.device, sent: Sent) -> Message:
    """The message with its tensors on the device, counters aside; what messages of an order share is copied once.

    On a CPU their places in memory are as good as those of new tensors, on which the bits of products depend.
    """
    if device.type == "cpu":
        message.tensors = {name: trees.with_aligned_memory(tensor) for name, tensor in message.tensors.items()}
        return message
    for name, tensor in message.tensors.items():
        if name.rpartition(".")[2] == "counters":  # those of a model, which are on the CPU
            continue
        key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if key not in sent:
            sent[key] = tensor, tensor.to(device)
        message.tensors[name] = sent[key][1]
    return message


def on_cpu(message: Any) -> Any:
    """The message with its tensors on the CPU; those that were shipped are there already."""
    message.tensors = {
        name: trees.with_aligned_memory(tensor.cpu()) if isinstance(tensor, Tensor) else tensor
        for name, tensor in message.tensors.items()
    }
    return message
