"""How messages travel between the driver and its hosts in Ray actors.

Large tensors go through the arena where both sides see it, else through Ray's object store; small ones come along with
their message. A tensor that is given to a client makes room for the next upload when the client's own is in the arena.
Its fit cannot be done again then, so its report is kept beside the upload, for the case that the host dies.
"""

import copyreg
import os
import pickle
import struct
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.methods.base import Message
from fedbench.runtime.arena import LEAST, Arena, Files, Place
from fedbench.runtime.host import Order, Reply, Report, as_tensor

ROUND = struct.Struct("q")


@dataclass(frozen=True)
class Slot:
    """Where a tensor of a packed message is: among the arrays that come with it, or the references after it."""

    index: int
    referred: bool = False


@dataclass
class Packet:
    """An order on its way, with places and slots for tensors.

    files: free ones for uploads; given: more of them, by the client whose upload frees them.
    """

    order: Order
    arrays: list[np.ndarray]
    files: list[int]
    given: dict[int, set[int]]


class Post:
    """The driver's side. folder: of the arena; put: Ray's, for one array."""

    def __init__(self, folder: Path, put: Callable[[np.ndarray], Any]) -> None:
        self._arena, self._put, self._kept = Arena(folder), put, KeptReports(folder)
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
        trained = [pair for pair in zip(order.tasks, packed.tasks, strict=True) if near and pair[0].fit]
        found = {task.client: self._given(task.download.given, sent.download) for task, sent in trained}
        given = {client: files for client, files in found.items() if files}
        needed = len(trained) - max(0, len(given) - 1)
        return Packet(packed, arrays, [self._arena.take(self._upload_bytes) for _ in range(needed)], given), references

    def _given(self, names: Collection[str], sent: Message) -> set[int]:
        """The files that hold nothing but tensors of these names."""
        places: list[Any] = [sent.tensors[name] for name in names]
        counts = Counter(place.file for place in places if isinstance(place, Place))
        return {file for file, count in counts.items() if self._arena.holds(file, count)}

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

    def rescued(self, packet: Packet) -> list[Report]:
        """What cannot be done again of an order that its host did not live to answer. The other files are free."""
        reports = [self._kept.read(client, packet.order.round) for client in packet.given]
        return self._unpacked(packet, [report for report in reports if report is not None], [])

    def unpacked(self, packet: Packet, reply: Reply, arrays: Sequence[np.ndarray]) -> Reply:
        """A host's reply with its tensors, the server's own to write to. Files that it did not use are free again."""
        self._unpacked(packet, reply.reports, arrays)
        return reply

    def _unpacked(self, packet: Packet, reports: list[Report], arrays: Sequence[np.ndarray]) -> list[Report]:
        unused = set(packet.files).union(*packet.given.values())
        for report in reports:
            for message in (report.upload, report.answer):
                if message is None:
                    continue
                held: dict[str, Any] = dict(message.tensors)
                places = {name: place for name, place in held.items() if isinstance(place, Place)}
                if places:
                    read = self._arena.read(list(places.values()))
                    held.update(zip(places, read, strict=True))
                    self._upload_bytes = max(place.end for place in places.values())
                    unused -= {place.file for place in places.values()}
                message.tensors = {
                    n: as_tensor(arrays[t.index]).clone() if isinstance(t, Slot) else t for n, t in held.items()
                }
        for file in unused:
            self._arena.give_back(file)
        return reports


class Mailbox:
    """The host's side."""

    def __init__(self, folder: Path) -> None:
        self._files, self._kept = Files(folder), KeptReports(folder)
        self._packet, self._free = Packet(Order(0, []), [], [], {}), list[int]()

    def opened(self, packet: Packet, references: Sequence[np.ndarray]) -> Order:
        """The order with its tensors, views of memory that is not this host's to write to."""
        self._packet, self._free = packet, list(packet.files)

        def change(found: Any) -> Tensor:
            if isinstance(found, Place):
                return self._files.read(found)
            return as_tensor((references if found.referred else packet.arrays)[found.index])

        return mapped(packet.order, change)

    def ship(self, report: Report) -> None:
        """Put the large tensors of an upload where the driver reads them, as soon as it is made."""
        assert report.upload is not None
        large = {n: t for n, t in report.upload.tensors.items() if t.nbytes >= LEAST}
        if not large or not self._free:
            return
        try:
            places: list[Any] = self._files.write(self._free[-1], list(large.values()))
        except OSError:  # shared memory is full: with the reply
            return
        self._free.pop()
        report.upload.tensors.update(zip(large, places, strict=True))
        given = self._packet.given.get(report.client)
        if given:
            # Small ones may be views of what was given.
            for name in report.upload.tensors.keys() - large:
                report.upload.tensors[name] = report.upload.tensors[name].clone()
            if self._kept.write(report, self._packet.order.round):
                self._free += given

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


class KeptReports:
    """Reports in files of a folder, the newest of every client: its round, and behind it the report.

    Each is written over the one before, because fresh pages would cost more than the bytes. The round is 0 meanwhile,
    so that what a host had not written to the end when it died is no report.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, report: Report, round: int) -> bool:
        """False where there is no room for it."""
        content = BytesIO()
        _ReportPickler(content, pickle.HIGHEST_PROTOCOL).dump(report)
        try:
            file = os.open(f"{self._folder}/report-{report.client}", os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                parts = (ROUND.pack(0), 0), (content.getbuffer(), ROUND.size), (ROUND.pack(round), 0)
                return all(os.pwrite(file, part, place) == len(part) for part, place in parts)
            finally:
                os.close(file)
        except OSError:
            return False

    def read(self, client: int, round: int) -> Report | None:
        """A client's report of this round, if it is there."""
        try:
            content = Path(f"{self._folder}/report-{client}").read_bytes()
        except FileNotFoundError:
            return None
        return pickle.loads(content[ROUND.size :]) if content.startswith(ROUND.pack(round)) else None


class _ReportPickler(pickle.Pickler):
    """Writes tensors as arrays: between two fits, PyTorch's own way takes a tenth of a millisecond for each."""

    dispatch_table = copyreg.dispatch_table | {Tensor: lambda tensor: (torch.from_numpy, (tensor.numpy(),))}


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
