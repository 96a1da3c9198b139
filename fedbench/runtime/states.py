"""Where private states of clients are: one per node, so that any host of the node can work for any client."""

import copy
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol

import torch

State = dict[str, Any]

LEAST_SHARED = 1 << 30


class States(Protocol):
    """Private states by client. A state saved in round t counts from the moment that round t is committed."""

    def load(self, client: int, committed: int) -> State: ...

    def save(self, client: int, round: int, state: State) -> None: ...

    def all(self, committed: int) -> dict[int, State]: ...


class MemoryStates:
    """In the calling process: for runs without Ray."""

    def __init__(self) -> None:
        self._held: dict[int, State] = {}

    def load(self, client: int, committed: int) -> State:
        # A copy: what a failing client did to its state must not stay.
        return copy.deepcopy(self._held.get(client, {}))

    def save(self, client: int, round: int, state: State) -> None:
        self._held[client] = state

    def all(self, committed: int) -> dict[int, State]:
        return {client: state for client, state in sorted(self._held.items()) if state}


class SharedStates:
    """Files in shared memory, `<client>.<round>`: read without a copy by any host of the node.

    A host that is killed while it works leaves the state of the last committed round untouched.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, client: int, committed: int) -> State:
        rounds = [r for r in self._rounds(client) if r <= committed]
        if not rounds:
            return {}
        return torch.load(self.folder / f"{client}.{max(rounds)}", mmap=True, weights_only=True)

    def save(self, client: int, round: int, state: State) -> None:
        if not state:
            return
        unfinished = self.folder / f"{client}.{round}.{os.getpid()}.part"
        torch.save(state, unfinished)
        unfinished.rename(self.folder / f"{client}.{round}")
        for old in sorted(r for r in self._rounds(client) if r < round)[:-1]:
            (self.folder / f"{client}.{old}").unlink(missing_ok=True)

    def all(self, committed: int) -> dict[int, State]:
        clients = {int(path.name.split(".")[0]) for path in self.folder.iterdir() if not path.name.endswith(".part")}
        return {client: state for client in sorted(clients) if (state := self.load(client, committed))}

    def _rounds(self, client: int) -> list[int]:
        return [int(p.name.split(".")[1]) for p in self.folder.glob(f"{client}.*") if not p.name.endswith(".part")]


def shared_folder(run: str, seed: int) -> Path:
    """The folder of a run in shared memory, empty. Folders of dead owners are removed.

    Where shared memory is small, as in many containers, it lies in the folder for temporary files.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > LEAST_SHARED
    base = (memory if roomy else Path(tempfile.gettempdir())) / f"fedbench-{os.getuid()}"
    base.mkdir(exist_ok=True)
    for folder in base.iterdir():
        owner = folder.name.rpartition("-")[2]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
    folder = base / f"{run}-{seed}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def states_folder(shared: Path) -> Path:
    """Where a run's folder in shared memory holds private states."""
    return shared / "states"


def messages_folder(shared: Path) -> Path:
    """Where a run's folder in shared memory holds messages under way."""
    return shared / "messages"
