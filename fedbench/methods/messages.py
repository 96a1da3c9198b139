"""What travels between server and clients: tensors by name, and the bytes that a real encoding of them takes."""

from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import RunError
from fedbench.module.weights import Weights


@dataclass(frozen=True)
class Encoded:
    """A tensor, and its bytes on the wire where these are not the bytes of its elements."""

    tensor: Tensor
    nbytes: int


def encoded(tensor: Tensor, bits: float) -> Encoded:
    """A tensor that is sent with so many bits per element, in whole bytes."""
    return Encoded(tensor, ceil(tensor.numel() * bits / 8))


def sparse(tensor: Tensor, elements: int) -> Encoded:
    """A tensor of which so many elements are sent."""
    return Encoded(tensor, elements * tensor.element_size())


def uncounted(value: Tensor | float) -> Encoded:
    """What a real encoding would not send, or what goes with any message. A number becomes a tensor."""
    return Encoded(torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64), 0)


Field = Tensor | Encoded


class Message:
    """One client's payload in one direction: named tensors, read as attributes."""

    def __init__(self, **fields: Field) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.sizes: dict[str, int] = {}
        self.add(**fields)

    def add(self, **fields: Field) -> "Message":
        """Put further fields into the message, and give it back. Raises RunError for what is no tensor."""
        for name, field in fields.items():
            if not isinstance(field, Tensor | Encoded):
                number = f"{name}=uncounted({field!r})" if isinstance(field, int | float) else f"{name}=uncounted(...)"
                raise RunError(
                    f"the field {name} of a message is of type {type(field).__name__}: send a tensor, whose bytes "
                    f"count, or `{number}`, which costs none"
                )
            whole = field if isinstance(field, Encoded) else Encoded(field, field.nbytes)
            self.tensors[name], self.sizes[name] = whole.tensor, whole.nbytes
        return self

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self.__dict__["tensors"][name]
        except KeyError:
            raise AttributeError(
                f"the message has no '{name}': it holds {sorted(self.__dict__.get('tensors', {}))}"
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(self.sizes.values())


class Upload(Message):
    """What a client sends: its number, its training images, and scalars to be traced.

    trained: the model that the client trained, which stays with it; its `after_fit` is evaluated.
    """

    def __init__(
        self,
        client: int,
        samples: int,
        trained: Weights | None = None,
        traces: dict[str, float] | None = None,
        **fields: Field,
    ) -> None:
        super().__init__(**fields)
        self.client, self.samples, self.trained, self.traces = client, samples, trained, traces or {}


def model_message(params: Field, buffers: Field, counters: Tensor, **more: Field) -> Message:
    """A model as it travels; counters of batches are never counted."""
    return Message(params=params, buffers=buffers, counters=uncounted(counters), **more)


def weights_of(message: Any) -> Weights:
    """The model in a message that holds all of it."""
    return Weights(message.params, message.buffers, message.counters)
