"""Stores of clients' private states; a client's state is in the store of its home host."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.errors import ConfigError
from fedbench.results.files import damage_error
from fedbench.runtime.states import trees

StateFields = dict[str, Any]
Versions = Mapping[int, int]
"""The round in which each client's state was saved."""


class StateLostError(RuntimeError):
    """The private state of a client that has trained is missing."""

    def __init__(self, client: int, round: int) -> None:
        super().__init__(client, round)
        self.client, self.round = client, round

    def __str__(self) -> str:
        return f"the private state of client {self.client}, saved in round {self.round}, is lost"


class ClientStore(ABC):
    """Private states by client, each with the round in which it was saved.

    A state counts once its round is over, that is, once the driver asks for it; a state from a round that is repeated
    because a host died is never requested. Until then the previous state is kept.
    """

    def load(self, client: int, round: int) -> StateFields:
        """The state saved in this round, which the caller may modify; empty for round 0.

        Raises StateLostError.
        """
        if not round:
            self.drop(client)
            return {}
        state = self._read(client, round)
        self._keep(client, {round})
        return state

    def was_deleted(self) -> bool:
        """Whether others have removed the place of the states."""
        return False

    def fetch(self, client: int, round: int) -> None:
        """Begin to load a state into memory, because it is needed next."""
        return

    def save(self, client: int, round: int, state: StateFields) -> int:
        """Keep a state, and the previous one in case this round is repeated; returns its bytes."""
        older = [known for known in self._rounds(client) if known < round]
        self._write(client, round, state)
        self._keep(client, {max(older, default=round), round})
        return trees.nbytes(state)

    def give(self, versions: Versions) -> dict[int, np.ndarray]:
        """Content of the clients' states, uint8, for another host's store. The states stay until dropped."""
        return {client: self._content(client, round) for client, round in versions.items()}

    def take(self, versions: Versions, contents: Mapping[int, np.ndarray]) -> None:
        """Store states given by another host's store."""
        for client, round in versions.items():
            self._put(client, round, contents[client])
            self._keep(client, {round})

    def snapshot(self, versions: Versions, path: Path) -> None:
        """Write the clients' states to one file, a host's shard of a checkpoint. Raises OSError, StateLostError."""
        trees.write(
            {client: (round, self._read(client, round)) for client, round in versions.items()}, path, checked=True
        )

    def restore(self, versions: Versions, shards: Sequence[Path]) -> None:
        """Load the clients' states from the shards of a checkpoint. Raises ConfigError if a state is missing."""
        for client, state in _select_versions(versions, shards):
            self._write(client, versions[client], state)

    def drop(self, client: int) -> None:
        """Forget a client."""
        self._keep(client, set())

    @abstractmethod
    def _rounds(self, client: int) -> set[int]: ...

    @abstractmethod
    def _read(self, client: int, round: int) -> StateFields: ...

    @abstractmethod
    def _write(self, client: int, round: int, state: StateFields) -> None: ...

    @abstractmethod
    def _content(self, client: int, round: int) -> np.ndarray: ...

    @abstractmethod
    def _put(self, client: int, round: int, content: np.ndarray) -> None: ...

    @abstractmethod
    def _keep(self, client: int, rounds: set[int]) -> None: ...


class MemoryStore(ClientStore):
    """States in this process's memory, lost when it ends."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, StateFields]] = {}

    def _rounds(self, client: int) -> set[int]:
        return set(self._held.get(client, {}))

    def _read(self, client: int, round: int) -> StateFields:
        if round not in self._rounds(client):
            raise StateLostError(client, round)
        return deepcopy(self._held[client][round])  # a failing client must not change the state

    def _write(self, client: int, round: int, state: StateFields) -> None:
        if client not in self._held:
            trees.pack_tree(state)  # a state that no checkpoint can hold fails the client, not the run
        self._held.setdefault(client, {})[round] = state

    def _content(self, client: int, round: int) -> np.ndarray:
        return trees.encode(self._read(client, round))

    def _put(self, client: int, round: int, content: np.ndarray) -> None:
        self._write(client, round, trees.decode(content))

    def _keep(self, client: int, rounds: set[int]) -> None:
        for round in self._rounds(client) - rounds:
            del self._held[client][round]


class DiskStore(ClientStore):
    """States as files of a folder, `<client>-<round>.safetensors`, memory-mapped when read.

    They outlive the process: the host that replaces a dead one continues with its folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[int, set[int]] = {}
        for file in folder.glob("*-*.safetensors"):
            client, _, round = file.stem.rpartition("-")
            self._known.setdefault(int(client), set()).add(int(round))

    def was_deleted(self) -> bool:
        return not self.folder.exists()

    def fetch(self, client: int, round: int) -> None:
        if round in self._rounds(client):
            with suppress(OSError), self._path(client, round).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def _rounds(self, client: int) -> set[int]:
        return self._known.get(client, set())

    def _path(self, client: int, round: int) -> Path:
        return self.folder / f"{client}-{round}.safetensors"

    def _read(self, client: int, round: int) -> StateFields:
        try:
            return trees.read(self._path(client, round))
        except OSError:
            raise StateLostError(client, round) from None

    def _write(self, client: int, round: int, state: StateFields) -> None:
        trees.write(state, self._path(client, round))
        self._known.setdefault(client, set()).add(round)

    def _content(self, client: int, round: int) -> np.ndarray:
        try:
            return np.fromfile(self._path(client, round), np.uint8)
        except OSError:
            raise StateLostError(client, round) from None

    def _put(self, client: int, round: int, content: np.ndarray) -> None:
        content.tofile(self._path(client, round))
        self._known.setdefault(client, set()).add(round)

    def _keep(self, client: int, rounds: set[int]) -> None:
        for round in self._rounds(client) - rounds:
            self._path(client, round).unlink(missing_ok=True)
            self._known[client].remove(round)


def open_store(folder: Path | None) -> ClientStore:
    """A store in files of the folder, or in memory without one."""
    return DiskStore(folder) if folder else MemoryStore()


def write_shard(versions: Versions, contents: Mapping[int, np.ndarray], path: Path) -> None:
    """Write contents given by a store as a shard of a checkpoint. Raises OSError."""
    trees.write({c: (round, trees.decode(contents[c])) for c, round in versions.items()}, path, checked=True)


def contents_of(versions: Versions, shards: Sequence[Path]) -> dict[int, np.ndarray]:
    """The clients' states from the shards of a checkpoint, as a store takes them. Raises ConfigError."""
    return {client: trees.encode(state) for client, state in _select_versions(versions, shards)}


def _select_versions(versions: Versions, shards: Sequence[Path]) -> Iterator[tuple[int, StateFields]]:
    """The requested versions of states; shards may hold older ones too."""
    missing = set(versions)
    for shard in shards:
        try:
            held = trees.read(shard)
        except OSError:
            raise damage_error(shard, "damaged", shard.parents[2]) from None
        for client, (round, state) in held.items():
            if versions.get(client) == round:
                missing.discard(client)
                yield client, state
    for client in sorted(missing):
        where = f"{shards[0].parent}: " if shards else ""
        raise ConfigError(
            f"{where}the state of client {client} is missing; delete the folder of the run to run it again"
        )
