"""Who owns the private states of clients: the store of the host where a client is at home."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.errors import ConfigError
from fedbench.results.files import rerun_hint
from fedbench.runtime import trees

StateFields = dict[str, Any]
Versions = Mapping[int, int]
"""By client: the round in which its state was saved."""


class StateLostError(RuntimeError):
    """A client has trained and its private state is not where it should be."""

    def __init__(self, client: int, round: int) -> None:
        super().__init__(client, round)
        self.client, self.round = client, round

    def __str__(self) -> str:
        return f"the private state of client {self.client}, saved in round {self.round}, is lost"


class ClientStore(ABC):
    """Private states by client, each with the round in which it was saved.

    A state counts once its round is over, which the driver says by asking for it: what was saved in a round that is
    done again, because a host died in it, is never asked for. Until then the state before it is kept.
    """

    def load(self, client: int, round: int) -> StateFields:
        """The state that was saved in this round, the caller's own to write to; empty for round 0, which is none.

        Raises StateLostError.
        """
        if not round:
            self.drop(client)
            return {}
        state = self._read(client, round)
        self._keep(client, {round})
        return state

    @abstractmethod
    def fetch(self, client: int, round: int) -> None:
        """Begin to bring a state into memory, because it is asked for next."""

    def save(self, client: int, round: int, state: StateFields) -> int:
        """Keep a state, and the one before it for the case that this round is done again; its bytes."""
        older = [known for known in self._rounds(client) if known < round]
        self._write(client, round, state)
        self._keep(client, {max(older, default=round), round})
        return trees.nbytes(state)

    def give(self, versions: Versions) -> dict[int, np.ndarray]:
        """Content of the clients' states, uint8, for the store of another host. They stay until they are dropped."""
        return {client: self._content(client, round) for client, round in versions.items()}

    def take(self, versions: Versions, contents: Mapping[int, np.ndarray]) -> None:
        """Take over states that another host's store gave."""
        for client, round in versions.items():
            self._put(client, round, contents[client])
            self._keep(client, {round})

    def snapshot(self, versions: Versions, path: Path) -> None:
        """Write the clients' states into one file: a host's shard of a checkpoint. Raises OSError, StateLostError."""
        trees.write({client: (round, self._read(client, round)) for client, round in versions.items()}, path)

    def restore(self, versions: Versions, shards: Sequence[Path]) -> None:
        """Take the clients' states over from the shards of a checkpoint. Raises ConfigError where one is in none."""
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
    """States in this process: they end with it."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, StateFields]] = {}

    def fetch(self, client: int, round: int) -> None:
        """It is there."""

    def _rounds(self, client: int) -> set[int]:
        return set(self._held.get(client, {}))

    def _read(self, client: int, round: int) -> StateFields:
        if round not in self._rounds(client):
            raise StateLostError(client, round)
        return deepcopy(self._held[client][round])  # what a failing client did to its state must not stay

    def _write(self, client: int, round: int, state: StateFields) -> None:
        if client not in self._held:
            trees.packed(state)  # what no checkpoint can hold is the client's failure, and not the run's
        self._held.setdefault(client, {})[round] = state

    def _content(self, client: int, round: int) -> np.ndarray:
        return np.frombuffer(trees.to_bytes(self._read(client, round)), np.uint8)

    def _put(self, client: int, round: int, content: np.ndarray) -> None:
        self._write(client, round, trees.from_bytes(content.tobytes()))

    def _keep(self, client: int, rounds: set[int]) -> None:
        for round in self._rounds(client) - rounds:
            del self._held[client][round]


class DiskStore(ClientStore):
    """States as files of a folder, `<client>-<round>.safetensors`, memory-mapped when they are read.

    They outlive the process: the host that takes a dead one's place goes on with its folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[int, set[int]] = {}
        for file in folder.glob("*-*.safetensors"):
            client, _, round = file.stem.rpartition("-")
            self._known.setdefault(int(client), set()).add(int(round))

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
    """In this process without a folder, else in files of the folder."""
    return DiskStore(folder) if folder else MemoryStore()


def write_shard(versions: Versions, contents: Mapping[int, np.ndarray], path: Path) -> None:
    """Write what a store gave as a shard of a checkpoint. Raises OSError."""
    trees.write({c: (round, trees.from_bytes(contents[c].tobytes())) for c, round in versions.items()}, path)


def contents_of(versions: Versions, shards: Sequence[Path]) -> dict[int, np.ndarray]:
    """The clients' states out of the shards of a checkpoint, as a store takes them. Raises ConfigError."""
    return {
        client: np.frombuffer(trees.to_bytes(state), np.uint8) for client, state in _select_versions(versions, shards)
    }


def _select_versions(versions: Versions, shards: Sequence[Path]) -> Iterator[tuple[int, StateFields]]:
    """The requested versions of states; shards may hold older ones too."""
    missing = set(versions)
    for shard in shards:
        try:
            held = trees.read(shard)
        except OSError:
            raise ConfigError(f"{shard}: damaged; {rerun_hint(shard.parents[2])}") from None
        for client, (round, state) in held.items():
            if versions.get(client) == round:
                missing.discard(client)
                yield client, state
    for client in sorted(missing):
        where = f"{shards[0].parent}: " if shards else ""
        raise ConfigError(
            f"{where}the state of client {client} is missing; delete the folder of the run to run it anew"
        )
