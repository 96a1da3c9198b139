"""Where private states of clients are: one per node, so that any host of the node can work for any client."""

import copy
import io
import math
import mmap
import os
import pickle
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedbench.runtime.arena import aligned

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
    """Files in shared memory, `<client>/<round>`: read without a copy by any host of the node.

    A host that is killed while it works leaves the state of the last committed round untouched.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, client: int, committed: int) -> State:
        rounds = [r for r in self._rounds(client) if r <= committed]
        return read_state(f"{self._of(client)}/{max(rounds)}") if rounds else {}

    def save(self, client: int, round: int, state: State) -> None:
        if not state:
            return
        own, before = self._of(client), [r for r in self._rounds(client) if r < round]
        if not before:
            os.makedirs(own, exist_ok=True)
        unfinished = f"{own}/{round}.{os.getpid()}.part"
        write_state(unfinished, state)
        os.rename(unfinished, f"{own}/{round}")
        for old in sorted(before)[:-1]:
            Path(own, str(old)).unlink(missing_ok=True)

    def all(self, committed: int) -> dict[int, State]:
        clients = sorted(int(name) for name in os.listdir(self.folder))
        return {client: state for client in clients if (state := self.load(client, committed))}

    def _of(self, client: int) -> str:
        """A folder for each client: one for all would be read from end to end for every one of them."""
        return f"{self.folder}/{client}"

    def _rounds(self, client: int) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._of(client)) if not name.endswith(".part")]
        except FileNotFoundError:
            return []


# A state's file: the length of a pickle in eight bytes, the pickle, and the bytes of the tensors, to which it refers by
# their start. Between two fits, torch.save and torch.load take a millisecond for a state of a few numbers.


def write_state(path: str, state: State) -> None:
    """Raises TypeError for what is neither a tensor, a number, a string nor a container of these."""
    content = io.BytesIO()
    pickler = _Pickler(content)
    pickler.dump(state)
    with open(path, "wb", buffering=0) as file:
        file.write(len(content.getbuffer()).to_bytes(8, sys.byteorder))
        file.write(content.getbuffer())
        begin = aligned(file.tell())
        for start, tensor in pickler.tensors:
            file.seek(begin + start)
            _write_all(file, tensor.reshape(-1).view(torch.uint8).numpy().data)


def read_state(path: str) -> State:
    """The state in a file, whose tensors are the reader's own to write to: the file stays as it is."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    end = 8 + int.from_bytes(content[:8], sys.byteorder)
    return _Unpickler(io.BytesIO(content[8:end]), np.frombuffer(content, np.uint8)[aligned(end) :]).load()


def _write_all(file: io.FileIO, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


class _Pickler(pickle.Pickler):
    """Puts tensors aside, each with where it starts."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[tuple[int, Tensor]] = []
        self._end = 0

    def persistent_id(self, found: Any) -> Any:
        if not isinstance(found, Tensor):
            return None
        start = aligned(self._end)
        self.tensors.append((start, found.detach().cpu().contiguous()))
        self._end = start + found.nbytes
        return start, tuple(found.shape), str(found.dtype).removeprefix("torch."), str(found.device)

    def reducer_override(self, found: Any) -> Any:
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        raise TypeError(f"client.state holds a {kind}: keep tensors, numbers, strings, lists and dicts")


class _Unpickler(pickle.Unpickler):
    """Makes nothing but what `_Pickler` accepts."""

    def __init__(self, file: io.BytesIO, tensors: np.ndarray) -> None:
        super().__init__(file)
        self._tensors = torch.from_numpy(tensors)

    def persistent_load(self, found: Any) -> Tensor:
        start, shape, dtype, device = found
        kind: torch.dtype = getattr(torch, dtype)
        size = math.prod(shape) * kind.itemsize
        if not size:  # may start behind the end of the file
            return torch.empty(shape, dtype=kind, device=device)
        return self._tensors[start : start + size].view(kind).view(shape).to(device)

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a client's state names {module}.{name}")


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
