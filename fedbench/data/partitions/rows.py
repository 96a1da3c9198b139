"""The rows of each client."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from fedbench.data.partitions.assignment import Assignment, rows_by_client

PARTITION_PARTS = ("train", "val", "test")
NEWCOMERS = "newcomers_"
"""The beginning of the names of newcomers' arrays in a file."""
Flat = tuple[np.ndarray, np.ndarray]
"""One part of all clients, int64: the rows of one client after the other, and their number per client."""


@dataclass(frozen=True, eq=False, slots=True)
class ClientRows:
    """Row numbers of one client, int64: training, validation and test images.

    Ascending, or in the order of the file that they come from.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


class Clients(Sequence[ClientRows]):
    """The rows of all clients in two flat arrays per part, without a Python object per client."""

    def __init__(self, parts: Sequence[Flat]) -> None:
        self.parts = dict(zip(PARTITION_PARTS, parts, strict=True))
        self._ends = {part: np.concatenate([[0], np.cumsum(sizes)]) for part, (_, sizes) in self.parts.items()}

    @classmethod
    def of(cls, clients: Sequence[ClientRows]) -> "Clients":
        nothing, parts = np.empty(0, np.int64), []
        for part in PARTITION_PARTS:
            rows = [getattr(client, part) for client in clients]
            parts.append((np.concatenate([nothing, *rows]), np.array([len(numbers) for numbers in rows], np.int64)))
        return cls(parts)

    def __len__(self) -> int:
        return len(self.parts["train"][1])

    def subset(self, numbers: np.ndarray) -> "Clients":
        """These clients, int64, ascending."""
        parts = []
        for rows, sizes in self.parts.values():
            parts.append((rows[np.isin(np.repeat(np.arange(len(sizes)), sizes), numbers)], sizes[numbers]))
        return Clients(parts)

    @overload
    def __getitem__(self, index: int) -> ClientRows: ...
    @overload
    def __getitem__(self, index: slice) -> "list[ClientRows]": ...
    def __getitem__(self, index: int | slice) -> "ClientRows | list[ClientRows]":
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        number = range(len(self))[index]
        ends = self._ends.items()
        return ClientRows(*(self.parts[part][0][end[number] : end[number + 1]] for part, end in ends))


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of every client, and of the public set if there is one.

    seed: the partition's seed. newcomers: the clients that join after the last round; their numbers follow those of the
    other clients.
    """

    clients: Clients
    public: np.ndarray | None = None
    warnings: tuple[str, ...] = ()
    seed: int = 0
    newcomers: Clients = field(default_factory=lambda: Clients.of([]))

    def rows_of(self, number: int) -> ClientRows:
        """The rows of a client or newcomer."""
        count = len(self.clients)
        return self.clients[number] if number < count else self.newcomers[number - count]

    def sizes(self, part: str) -> np.ndarray:
        """The number of rows of a part per client, int64 [clients]."""
        return self.clients.parts[part][1]

    def fingerprint(self) -> str:
        """The sha256 of all row numbers in hexadecimal: by client and part, each count before its rows."""
        digest = hashlib.sha256(_content(self.clients))
        public = np.empty(0, np.int64) if self.public is None else self.public
        digest.update(len(public).to_bytes(8, "little") + public.astype("<i8").tobytes())
        if self.newcomers:
            digest.update(_content(self.newcomers))
        return digest.hexdigest()

    def class_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Training images per client and class, int64 [clients, classes], by the labels [rows] of the data set."""
        rows, sizes = self.clients.parts["train"]
        cells = np.repeat(np.arange(len(sizes)), sizes) * classes + labels[rows]
        return np.bincount(cells, minlength=len(sizes) * classes).reshape(len(sizes), classes)

    def tree(self) -> dict[str, Any]:
        """The partition for JSON, as the scheme `file` reads it."""
        tree = {"clients": _as_lists(self.clients)} | ({} if self.public is None else {"public": self.public.tolist()})
        return tree | ({"newcomers": _as_lists(self.newcomers)} if self.newcomers else {})

    def arrays(self) -> dict[str, np.ndarray]:
        """The partition as flat arrays by name, which the scheme `file` also reads."""
        arrays = dict[str, np.ndarray]()
        for clients, prefix in ((self.clients, ""), (self.newcomers, NEWCOMERS)):
            for part, (rows, sizes) in clients.parts.items() if len(clients) else ():
                arrays |= {f"{prefix}{part}": rows, f"{prefix}{part}_sizes": sizes}
        return arrays | ({} if self.public is None else {"public": self.public})


def _content(clients: Clients) -> bytes:
    """All row numbers by client and part, each count before its rows."""
    sizes = np.stack([sizes for _, sizes in clients.parts.values()], axis=1)
    begins = np.cumsum(sizes + 1).reshape(sizes.shape) - sizes - 1
    whole = np.empty(sizes.sum() + sizes.size, "<i8")
    whole[begins] = sizes
    for column, (rows, counts) in enumerate(clients.parts.values()):
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        whole[np.repeat(begins[:, column] + 1, counts) + within] = rows
    return whole.tobytes()


def _as_lists(clients: Clients) -> list[dict[str, list[int]]]:
    return [{part: getattr(rows, part).tolist() for part in PARTITION_PARTS} for rows in clients]


def client_rows(train: Assignment, val: np.ndarray, test: Assignment, count: int, sort: bool = True) -> Clients:
    """The rows of these clients, ascending or in order. val: bool [n], which of `train` are held out."""
    return Clients([rows_by_client(part, count, sort) for part in (train.chosen(~val), train.chosen(val), test)])
