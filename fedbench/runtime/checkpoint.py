"""Checkpoints: whole or absent. A folder `round-<t>` is written under another name, flushed and renamed."""

import os
import shutil
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

PREFIX = "round-"


def save(folder: Path, round: int, content: dict[str, Any]) -> None:
    """Write the checkpoint of a round and drop older ones. Raises OSError, and leaves the older ones as they were."""
    unfinished, finished = folder / f".{PREFIX}{round:06d}", folder / f"{PREFIX}{round:06d}"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        with open(unfinished / "state.pt", "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(finished, ignore_errors=True)
        unfinished.rename(finished)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        shutil.rmtree(unfinished, ignore_errors=True)
        raise OSError(f"checkpoint of round {round} could not be written: {str(error).splitlines()[0]}") from error
    for old in _finished(folder):
        if old != finished:
            shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None."""
    for found in reversed(_finished(folder)):
        try:
            return torch.load(found / "state.pt", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, UnpicklingError):
            continue
    return None


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _finished(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*")) if folder.is_dir() else []
