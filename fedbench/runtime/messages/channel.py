"""Sends messages between the driver and its hosts in Ray actors.

Large tensors lie in shared memory (the arena) if both sides see it, and go through Ray's object store otherwise; small
tensors travel with their message.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.methods.messages import Message
from fedbench.runtime.clients.client_data import as_tensor
from fedbench.runtime.exchange import Order, Reply
from fedbench.runtime.messages.arena import SMALLEST_SHARED, Arena, Files, TensorPlace


@dataclass(frozen=True)
class TensorIndex:
    """Index of a packed tensor among the arrays that come with the message, or the references after it."""

    index: int
    by_reference: bool = False


@dataclass
class PackedOrder:
    """An order in transit, with places and slots for tensors. files: arena files free for uploads and their total."""

    order: Order
    arrays: list[np.ndarray]
    files: list[int]


class DriverEnd:
    """The driver's end of the channels to its hosts. folder: of the arena; put: `ray.put` for one array."""

    def __init__(self, folder: Path, put: Callable[[np.ndarray], Any]) -> None:
        self._arena, self._put, self._upload_bytes = Arena(folder), put, 0
        self.begin_exchange()

    def begin_exchange(self) -> None:
        """Forget what was sent before."""
        # Tensor id and nearness -> place or reference, and objects that must live as long.
        self._sent: dict[tuple[int, bool], tuple[Any, ...]] = {}

    def pack(self, order: Order, near: bool) -> tuple[PackedOrder, list[Any]]:
        """Returns a packed order and the Ray references sent after it. near: whether the host sees the arena.

        A tensor in several orders of an exchange is stored once.
        """
        arrays: list[np.ndarray] = []
        references: list[Any] = []

        def change(tensor: Tensor) -> TensorPlace | TensorIndex:
            if tensor.nbytes < SMALLEST_SHARED:
                arrays.append(tensor.contiguous().numpy())
                return TensorIndex(len(arrays) - 1)
            stored = self._store(tensor, near)
            if isinstance(stored, TensorPlace):
                return stored
            references.append(stored)
            return TensorIndex(len(references) - 1, by_reference=True)

        alone = sum(task.train and task.share is None for task in order.tasks)
        total = any(task.share is not None for task in order.tasks)
        uploads = min(alone + total, self._arena.room) if near else 0
        files = [self._arena.take(self._upload_bytes) for _ in range(uploads)]
        return PackedOrder(with_tensors(order, change), arrays, files), references

    def _store(self, tensor: Tensor, near: bool) -> Any:
        key = (id(tensor), near)
        if key not in self._sent:
            self._sent[key] = (*(self._in_arena(tensor) if near else self._by_ray(tensor)), tensor)
        return self._sent[key][0]

    def _in_arena(self, tensor: Tensor) -> tuple[Any, ...]:
        try:
            return self._arena.store(tensor)
        except OSError:  # shared memory or the arena is full: Ray's store spills to disk
            return self._by_ray(tensor)

    def _by_ray(self, tensor: Tensor) -> tuple[Any, ...]:
        return (self._put(tensor.contiguous().numpy()),)

    def empty_like(self, tensor: Tensor) -> Tensor:
        """A tensor of this shape and type in the arena if there is room, which is sent without a copy."""
        with suppress(OSError):
            if tensor.nbytes >= SMALLEST_SHARED:
                return self._arena.empty_like(tensor)
        return torch.empty_like(tensor)

    def release(self, packed: PackedOrder) -> None:
        """Free the files of a host that died before answering."""
        for file in packed.files:
            self._arena.give_back(file)

    def open(self, packed: PackedOrder, reply: Reply, arrays: Sequence[np.ndarray]) -> Reply:
        """A host's reply with its tensors, which the server may modify. Frees the files that the host did not use."""
        unused = set(packed.files)
        for message in reply.messages():
            held: dict[str, Any] = dict(message.tensors)
            places = {name: place for name, place in held.items() if isinstance(place, TensorPlace)}
            if places:
                read = self._arena.read(list(places.values()))
                held.update(zip(places, read, strict=True))
                self._upload_bytes = max(place.end for place in places.values())
                unused -= {place.file for place in places.values()}
            message.tensors = {
                n: as_tensor(arrays[t.index]).clone() if isinstance(t, TensorIndex) else t for n, t in held.items()
            }
        for file in unused:
            self._arena.give_back(file)
        return reply


class HostEnd:
    """A host's end of the channel to its driver."""

    def __init__(self, folder: Path) -> None:
        self._files, self._free = Files(folder), list[int]()

    def open(self, packed: PackedOrder, references: Sequence[np.ndarray]) -> Order:
        """The order with its tensors, views of memory that this host must not modify."""
        self._free = list(packed.files)

        def change(leaf: Any) -> Tensor:
            if isinstance(leaf, TensorPlace):
                return self._files.read(leaf)
            return as_tensor((references if leaf.by_reference else packed.arrays)[leaf.index])

        return with_tensors(packed.order, change)

    def ship(self, message: Message) -> None:
        """Put the large tensors of an upload or a total into the arena, where the driver reads them."""
        held: dict[str, Any] = message.tensors
        large = {name: tensor for name, tensor in held.items() if tensor.nbytes >= SMALLEST_SHARED}
        if not large or not self._free:
            return
        try:
            places: list[Any] = self._files.write(self._free[-1], list(large.values()))
        except OSError:  # shared memory is full: send with the reply
            return
        self._free.pop()
        held.update(zip(large, places, strict=True))

    def pack(self, reply: Reply) -> tuple[Reply, list[np.ndarray]]:
        """A reply whose tensors are in the list of arrays or already in the arena."""
        arrays: list[np.ndarray] = []

        def change(leaf: Any) -> Any:
            if isinstance(leaf, TensorPlace):
                return leaf
            arrays.append(leaf.contiguous().numpy())
            return TensorIndex(len(arrays) - 1)

        for message in reply.messages():
            message.tensors = {n: change(t) for n, t in message.tensors.items()}
        return reply, arrays


def with_tensors(order: Order, change: Callable[[Any], Any]) -> Order:
    """Apply a function to every tensor (or placeholder) of an order; messages shared by tasks stay shared."""
    seen: dict[int, Message] = {}

    def of(message: Message | None) -> Any:
        if message is None:
            return None
        if id(message) not in seen:
            seen[id(message)] = twin = copy(message)
            twin.tensors = {name: change(tensor) for name, tensor in message.tensors.items()}
        return seen[id(message)]

    tasks = [replace(task, message=of(task.message)) for task in order.tasks]
    return replace(order, tasks=tasks, global_model=of(order.global_model))
