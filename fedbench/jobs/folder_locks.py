"""Makes folders for results, and locks them against other commands."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path

from fedbench.errors import ConfigError
from fedbench.results.files import (
    PART_SUFFIX,
    hold_file_lock,
    occupied_line,
    remove_half_written,
)
from fedbench.runtime import retries
from fedbench.runtime.states import checkpoint


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Make a folder for a block. Raises ConfigError if it cannot be written to.

    Folders made for the block are removed after it if they are empty.
    """
    missing = [path for path in (folder.absolute(), *folder.absolute().parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}{PART_SUFFIX}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        _remove_empty(missing)
        if line := occupied_line(folder, error):
            raise ConfigError(f"{line}, or choose another folder with --out") from None
        raise ConfigError(
            f"out = {folder}: cannot be written to ({error.strerror}); choose another folder with --out"
        ) from None
    try:
        yield
    finally:
        _remove_empty(missing)


def _remove_empty(folders: list[Path]) -> None:
    """Remove empty folders; others stay, because other runs may have begun beside this one."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked_folder(folder: Path, patience: float | None = None) -> Iterator[None]:
    """Lock a folder, made if necessary, against other commands.

    Raises ConfigError if one keeps it locked for longer than `patience` seconds, by default `WAIT_FOR_COMMAND`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    patience = retries.WAIT_FOR_COMMAND if patience is None else patience
    with hold_file_lock(folder, patience, f"{folder}: another command is at work here"):
        remove_half_written(folder)
        yield


@contextmanager
def folder_in_turn(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Lock a folder against other commands; if one is at work there, say so and wait for its end."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_folder(folder, patience=0))
        except ConfigError:
            say(f"{folder}: another command is at work here; waiting for its end")
            stack.enter_context(locked_folder(folder, patience=inf))
        yield


def remove_leftovers(folder: Path, rounds: int) -> None:
    """Remove a killed command's leftovers in the folder of a finished run, unless another command is at work there."""
    if any(path.name == "checkpoint" or path.name.endswith(PART_SUFFIX) for path in folder.iterdir()):
        with suppress(ConfigError), locked_folder(folder, patience=0):
            checkpoint.remove_unless_last(folder / "checkpoint", rounds)
