"""Checkpoints: whole or absent. A folder `round-<t>` is written under another name, flushed and renamed."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedbench.errors import ConfigError
from fedbench.runtime import trees

FORMAT = 2
"""Counted up with every change of what a checkpoint holds."""
PREFIX, OLD = "round-", ".old-"
DRIVER = "driver.safetensors"


def save(folder: Path, round: int, content: dict[str, Any], more: Callable[[Path], None] = lambda folder: None) -> None:
    """Write the checkpoint of a round and drop older ones. Raises OSError, and leaves the older ones as they were.

    more: called with the folder under way, for what others write into it: the hosts' shards.
    """
    unfinished, finished = folder / f".{PREFIX}{round:06d}", folder / f"{PREFIX}{round:06d}"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        more(unfinished)
        trees.write({**content, "format": FORMAT}, unfinished / DRIVER)
        for path in unfinished.iterdir():
            _flush(path)
        _aside(finished)
        unfinished.rename(finished)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise OSError(f"checkpoint of round {round} could not be written: {str(error).splitlines()[0]}") from error
    for old in _finished(folder):
        if old != finished:
            _aside(old)
    for old in folder.glob(f"{OLD}*"):
        shutil.rmtree(old, ignore_errors=True)


def _aside(folder: Path) -> None:
    """Take a checkpoint out of the way, whole, until the one that takes its place counts."""
    aside = folder.with_name(f"{OLD}{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(aside)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that is whole, its folder and the driver's part of it; or None.

    Raises ConfigError for one that another version of fedbench wrote.
    """
    for found in reversed([*sorted(folder.glob(f"{OLD}*")), *_finished(folder)]):
        try:
            content = trees.read(found / DRIVER)
        except (OSError, SafetensorError):
            continue
        if content.pop("format", None) != FORMAT:
            raise ConfigError(
                f"{found}: written by another version of fedbench, which can go on with it; delete {folder.parent} to "
                "run it anew"
            )
        return found, content
    return None


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _finished(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*")) if folder.is_dir() else []
