"""How messages travel between the driver and its hosts in Ray actors.

Large tensors go through the arena where both sides see it, else through Ray's object store; small ones come along with
their message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedbench.methods.base import Message, Upload
from fedbench.runtime.arena import LEAST, Arena, Files, Place
from fedbench.runtime.host import Order, Reply, as_tensor


@dataclass(frozen=True)
class Slot:
    """Where a tensor of a packed message is: among the arrays that come with it, or the references after it."""

    index: int
    referred: bool = False


@dataclass
class Packet:
    """An order on its way, with places and slots for tensors. files: where each client's upload goes."""

    order: Order
    arrays: list[np.ndarray]
    files: dict[int, int]


class Post:
    """The driver's side. folder: of the arena; put: Ray's, for one array."""

    def __init__(self, folder: Path, put: Callable[[np.ndarray], Any]) -> None:
        self._arena, self._put = Arena(folder), put
        self._upload_bytes = 0
        self.begin_round()

    def begin_round(self) -> None:
        """Let go of what was sent before."""
        self._sent: dict[
            tuple[int, bool], tuple[Any, ...]
        ] = {}  # id, near -> place or reference, and what must live as long as it

    def packet(self, order: Order, near: bool) -> tuple[Packet, list[Any]]:
        """An order for a host, which is `near` if it sees the arena, and the Ray references that go after it.

        A tensor of several orders of a round is stored once.
        """
        arrays: list[np.ndarray] = []
        references: list[Any] = []

        def change(tensor: Tensor) -> Place | Slot:
            if tensor.nbytes < LEAST:
                arrays.append(tensor.contiguous().numpy())
                return Slot(len(arrays) - 1)
            found = self._stored(tensor, near)
            if isinstance(found, Place):
                return found
            references.append(found)
            return Slot(len(references) - 1, referred=True)

        packed = mapped(order, change)
        trained = [task.client for task in order.tasks if task.fit] if near else []
        return Packet(packed, arrays, {c: self._arena.take(self._upload_bytes) for c in trained}), references

    def _stored(self, tensor: Tensor, near: bool) -> Any:
        key = (id(tensor), near)
        if key not in self._sent:
            self._sent[key] = (*(self._in_arena(tensor) if near else self._by_ray(tensor)), tensor)
        return self._sent[key][0]

    def _in_arena(self, tensor: Tensor) -> tuple[Any, ...]:
        try:
            return self._arena.store(tensor)
        except OSError:  # shared memory is full: Ray's store goes on on disk
            return self._by_ray(tensor)

    def _by_ray(self, tensor: Tensor) -> tuple[Any, ...]:
        return (self._put(tensor.contiguous().numpy()),)

    def discard(self, packet: Packet) -> None:
        """Free the files of an order that its host did not live to answer."""
        for file in packet.files.values():
            self._arena.give_back(file)

    def unpacked(self, packet: Packet, reply: Reply, arrays: Sequence[np.ndarray]) -> Reply:
        """A host's reply with its tensors, the server's own to write to. Files that it did not use are free again."""
        unused = dict(packet.files)
        for report in reply.reports:
            for message in (report.upload, report.answer):
                if message is None:
                    continue
                held: dict[str, Any] = dict(message.tensors)
                places = {name: place for name, place in held.items() if isinstance(place, Place)}
                if places:
                    del unused[report.client]
                    read = self._arena.read(list(places.values()))
                    held.update(zip(places, read, strict=True))
                    self._upload_bytes = max(place.end for place in places.values())
                message.tensors = {
                    n: as_tensor(arrays[t.index]).clone() if isinstance(t, Slot) else t for n, t in held.items()
                }
        for file in unused.values():
            self._arena.give_back(file)
        return reply


class Mailbox:
    """The host's side."""

    def __init__(self, folder: Path) -> None:
        self._files = Files(folder)
        self._packet = Packet(Order(0, []), [], {})

    def opened(self, packet: Packet, references: Sequence[np.ndarray]) -> Order:
        """The order with its tensors, views of memory that is not this host's to write to."""
        self._packet = packet

        def change(found: Any) -> Tensor:
            if isinstance(found, Place):
                return self._files.read(found)
            return as_tensor((references if found.referred else packet.arrays)[found.index])

        return mapped(packet.order, change)

    def ship(self, upload: Upload) -> None:
        """Put the large tensors of an upload where the driver reads them, as soon as it is made."""
        large = {n: t for n, t in upload.tensors.items() if t.nbytes >= LEAST}
        file = self._packet.files.get(upload.client)
        if not large or file is None:
            return
        try:
            places: list[Any] = self._files.write(file, list(large.values()))
        except OSError:  # shared memory is full: with the reply
            return
        upload.tensors.update(zip(large, places, strict=True))

    def packed(self, reply: Reply) -> tuple[Reply, list[np.ndarray]]:
        """A reply whose tensors are in the list of arrays, or in the arena already."""
        arrays: list[np.ndarray] = []

        def change(found: Any) -> Any:
            if isinstance(found, Place):
                return found
            arrays.append(found.contiguous().numpy())
            return Slot(len(arrays) - 1)

        for report in reply.reports:
            for message in (report.upload, report.answer):
                if message is not None:
                    message.tensors = {n: change(t) for n, t in message.tensors.items()}
        return reply, arrays


def mapped(order: Order, change: Callable[[Any], Any]) -> Order:
    """The order with every tensor (or what stands for it) changed; a message that tasks share stays shared."""
    seen: dict[int, Message] = {}

    def of(message: Message | None) -> Any:
        if message is None:
            return None
        if id(message) not in seen:
            tensors = {name: change(tensor) for name, tensor in message.tensors.items()}
            seen[id(message)] = Message(tensors, message.bits, message.charge)
        return seen[id(message)]

    tasks = [replace(task, download=of(task.download)) for task in order.tasks]
    return Order(order.round, tasks, of(order.global_model), of(order.question))
