"""Folders for files that live as long as a run: messages in transit, private states."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from fedbench.errors import ConfigError

ROOMY = 1 << 30
"""Bytes that stay free in shared memory where it is used; in many containers it is small."""

LARGE = 1 << 30
"""Bytes of private states above which they are on disk, so that memory does not grow with the number of clients."""

LOCK = ".owner"


class Scratch:
    """A folder in this machine's shared memory, or among its temporary files if that is small.

    base: the user's folder in which to create it; bytes: the largest expected size; a very large folder is always among
    the temporary files.

    The owner holds a lock in the folder, which ends with the owner's process. Whoever creates a folder removes those
    that are not locked, so that process ids are not needed. name: of a folder to take over; if it is locked, another
    one is created. Raises ConfigError if the folder cannot be made.
    """

    def __init__(self, base: Path | None = None, name: str | None = None, bytes: int = 0) -> None:
        room = shared_memory() if bytes <= LARGE else Path(tempfile.gettempdir())
        base = subfolder(base or room)
        try:
            base.mkdir(parents=True, exist_ok=True)
            with folder_lock(base):
                fresh = uuid.uuid4().hex[:16]
                self.folder = base / (fresh if name is None or _is_held(base / name) else name)
                self.folder.mkdir(exist_ok=True)
                self._lock = (self.folder / LOCK).open("ab")
                lock_descriptor(self._lock.fileno())
                sweep(base)
        except OSError as error:
            raise ConfigError(
                f"resources.scratch: {base} cannot be used ({error.strerror}); set it to one in which you may write"
            ) from None

    def close(self) -> None:
        """Remove the folder. May be called again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # the folder is gone, so its lock protects nothing
            self._lock.close()


def shared_memory(bytes: int = 0) -> Path:
    """Shared memory if there is room for so much, or else the folder of temporary files."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOMY + bytes
    return memory if roomy else Path(tempfile.gettempdir())


def sweep_all(base: Path | None) -> None:
    """Remove the folders of processes that were killed, wherever a run may have made them. base: the user's folder."""
    for folder in {Path("/dev/shm"), Path(tempfile.gettempdir()), base}:
        if folder is not None and (inside := subfolder(folder)).is_dir():
            with suppress(OSError), folder_lock(inside):
                sweep(inside)


def subfolder(base: Path) -> Path:
    """Where the scratch folders of this user are."""
    return base / f"fedbench-{os.getuid()}"


def sweep(base: Path) -> None:
    """Remove the subfolders whose owners are gone; those without a lock file are not ours."""
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
    """Lock a folder for a block."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock_descriptor(handle)
        yield
    finally:
        os.close(handle)
