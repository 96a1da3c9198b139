"""Folders for what lives as long as a run: messages under way, private states."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

ROOMY = 1 << 30
"""Bytes that shared memory must have free to be used; in many containers it is small."""

LARGE = 1 << 30
"""Bytes of private states from which they lie on a disk: memory is not to grow with the number of clients."""

LOCK = ".owner"


class Scratch:
    """A folder in this machine's shared memory, or among its temporary files where that is small.

    base: a folder of the user's, in which ours has its own; bytes: how many it may come to hold; where they are very
    many, it is among the temporary files in any case.

    Its owner holds a lock in it, which ends with the owner's process however that ends. Whoever makes a folder removes
    those that nobody holds, so that no process id is ever looked at. name: of a folder that is taken over where it is
    there and nobody holds it; another one is made where somebody does.
    """

    def __init__(self, base: Path | None = None, name: str | None = None, bytes: int = 0) -> None:
        room = shared_memory() if bytes <= LARGE else Path(tempfile.gettempdir())
        base = (base or room) / f"fedbench-{os.getuid()}"
        base.mkdir(parents=True, exist_ok=True)
        with folder_lock(base):
            fresh = uuid.uuid4().hex[:16]
            self.folder = base / (fresh if name is None or _is_held(base / name) else name)
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            lock_descriptor(self._lock)
            sweep(base)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def shared_memory() -> Path:
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOMY
    return memory if roomy else Path(tempfile.gettempdir())


def sweep(base: Path) -> None:
    """Remove the folders below whose owners are gone; those that never had one are not ours."""
    for folder in base.iterdir():
        if (folder / LOCK).exists() and not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    try:
        handle = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not lock_descriptor(handle, blocking=False)
    finally:
        os.close(handle)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """One process at a time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock_descriptor(handle)
        yield
    finally:
        os.close(handle)
