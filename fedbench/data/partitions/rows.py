"""Who holds which rows of a data set."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.data.partitions.holdings import Holdings, by_client, in_pieces

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, slots=True)
class ClientRows:
    """Row numbers of one client, int64: training, validation and test images.

    Ascending, but in a file's order where they come from one.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of every client, and those of the public set where there is one. seed: what it was drawn with."""

    clients: Sequence[ClientRows]
    public: np.ndarray | None = None
    warnings: tuple[str, ...] = ()
    seed: int = 0

    def fingerprint(self) -> str:
        """sha256 of all row numbers, in hexadecimal."""
        digest = hashlib.sha256()
        parts = [rows for client in self.clients for rows in (client.train, client.val, client.test)]
        for rows in [*parts, np.empty(0) if self.public is None else self.public]:
            digest.update(len(rows).to_bytes(8, "little") + rows.astype("<i8").tobytes())
        return digest.hexdigest()

    def class_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Training images per client and class, int64 [clients, classes], by the labels [rows] of the data set."""
        owners, count = owners_of(client.train for client in self.clients), len(self.clients)
        cells = owners * classes + labels[np.concatenate([client.train for client in self.clients])]
        return np.bincount(cells, minlength=count * classes).reshape(count, classes)

    def tree(self) -> dict[str, Any]:
        """For JSON, as the scheme `file` reads it."""
        clients = [{part: getattr(rows, part).tolist() for part in PARTS} for rows in self.clients]
        return {"clients": clients} | ({} if self.public is None else {"public": self.public.tolist()})

    def __reduce__(self) -> tuple:
        """Six flat arrays: a hundred thousand small ones would take a process seconds to send."""
        parts = [[getattr(client, part) for client in self.clients] for part in PARTS]
        flat = [(np.concatenate(rows), np.array([len(own) for own in rows])) for rows in parts]
        return _unpacked, (flat, self.public, self.warnings, self.seed)


def _unpacked(flat: list, public: np.ndarray | None, warnings: tuple[str, ...], seed: int) -> Partition:
    parts = [in_pieces(rows, sizes) for rows, sizes in flat]
    return Partition([ClientRows(*rows) for rows in zip(*parts, strict=True)], public, warnings, seed)


def client_rows(train: Holdings, val: np.ndarray, test: Holdings, count: int, sort: bool = True) -> list[ClientRows]:
    """The rows of so many clients, ascending or as they stand. val: bool [n], which of `train` are held out."""
    parts = (Holdings(train.rows[~val], train.owners[~val]), Holdings(train.rows[val], train.owners[val]), test)
    return [ClientRows(*rows) for rows in zip(*(by_client(part, count, sort) for part in parts), strict=True)]


def owners_of(rows: Iterable[np.ndarray]) -> np.ndarray:
    sizes = [len(own) for own in rows]
    return np.repeat(np.arange(len(sizes)), sizes)
