"""Messages between server and clients: tensors by name, and the bytes of a real encoding."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, takewhile
from math import ceil
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import RunError
from fedbench.module.weights import Weights


@dataclass(frozen=True)
class Encoded:
    """A tensor whose bytes on the wire differ from the bytes of its elements."""

    tensor: Tensor
    nbytes: int


def encoded(tensor: Tensor, bits: float) -> Encoded:
    """A tensor sent with `bits` bits per element, in whole bytes."""
    return Encoded(tensor, ceil(tensor.numel() * bits / 8))


def sparse(tensor: Tensor, elements: int) -> Encoded:
    """A tensor of which `elements` elements are sent."""
    return Encoded(tensor, elements * tensor.element_size())


def zero_bytes(value: Tensor | float) -> Encoded:
    """A value that a real encoding omits or sends with any message: 0 bytes. A number becomes a tensor."""
    return Encoded(torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64), 0)


Field = Tensor | Encoded | Weights


class Message:
    """The payload of one client in one direction: named tensors and models, read as attributes.

    A model travels as three tensors, NAME.params, NAME.buffers and NAME.counters, whose bytes but the last one's count.
    """

    def __init__(self, **fields: Field) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.sizes: dict[str, int] = {}
        self.add(**fields)

    def add(self, **fields: Field) -> "Message":
        """Adds fields to the message and returns it. Raises RunError for a field that is no tensor and no model."""
        for name, field in fields.items():
            if isinstance(field, Weights):
                parts: dict[str, Field] = {
                    "params": field.params,
                    "buffers": field.buffers,
                    "counters": zero_bytes(field.counters),
                }
                self.add(**{f"{name}.{part}": value for part, value in parts.items()})
                continue
            if not isinstance(field, Tensor | Encoded):
                number = (
                    f"{name}=zero_bytes({field!r})" if isinstance(field, int | float) else f"{name}=zero_bytes(...)"
                )
                raise RunError(
                    f"the field {name} of a message is of type {type(field).__name__}: send a tensor or weights, whose "
                    f"bytes count, or `{number}`, which costs no bytes"
                )
            whole = field if isinstance(field, Encoded) else Encoded(field, field.nbytes)
            self.tensors[name], self.sizes[name] = whole.tensor, whole.nbytes
        return self

    def __getattr__(self, name: str) -> Any:
        """A tensor, or the Weights of a model."""
        tensors: dict[str, Tensor] = self.__dict__.get("tensors", {})
        if name in tensors:
            return tensors[name]
        if f"{name}.params" in tensors:
            return Weights(*(tensors[f"{name}.{part}"] for part in ("params", "buffers", "counters")))
        raise AttributeError(f"the message has no field '{name}', only {sorted(tensors)}")

    def models(self, name: str) -> list[Weights]:
        """The models NAME0, NAME1, ... of the message."""
        return [getattr(self, f"{name}{number}") for number in takewhile(lambda n: f"{name}{n}" in self, count())]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors or f"{name}.params" in self.tensors

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(self.sizes.values())


class Upload(Message):
    """A client's upload: its number, its number of training images, and scalars to trace.

    trained: the trained model, which stays at the client and is evaluated as `after_fit`.
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
    """The message of a model; the bytes of batch counters are not counted."""
    return Message(params=params, buffers=buffers, counters=zero_bytes(counters), **more)


def number_models(name: str, models: Iterable[Weights]) -> dict[str, Field]:
    """Several models as the fields NAME0, NAME1, ..., for `Message.models`."""
    return {f"{name}{number}": model for number, model in enumerate(models)}


def weights_of(message: Any) -> Weights:
    """The model in a message that has all of its parts."""
    return Weights(message.params, message.buffers, message.counters)
