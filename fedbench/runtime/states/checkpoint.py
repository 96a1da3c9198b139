"""Checkpoints: files `round-<t>.safetensors`, written atomically, with the hosts' states in shards beside them."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from fedbench.errors import ConfigError, first_line
from fedbench.results.files import PART_SUFFIX, damage_error, flush
from fedbench.runtime.states import trees
from fedbench.runtime.states.shards import Shards, Snapshot
from fedbench.runtime.states.store import Versions

FORMAT = 6
"""Incremented whenever the content of checkpoints changes."""
PREFIX, SUFFIX = "round-", ".safetensors"
SHARE_OF_TIME = 0.05
"""Share of a run's time that checkpoints may take if `every` is "auto"."""
LEAST_WORK = 1.0
"""Seconds of work that are worth a checkpoint then: less is done again in no time."""


class Checkpoints:
    """The checkpoints of a run in progress.

    folder: of the checkpoints; every: number of rounds, "auto", or 0 for none; rounds: of the run; keep_last: whether
    there is one of the last round, from which a longer run continues.
    """

    def __init__(self, folder: Path, every: int | Literal["auto"], rounds: int, keep_last: bool = False) -> None:
        self._folder, self._every, self._rounds, self._keep_last = folder, every, rounds, keep_last
        self._shards = Shards(folder)
        self._ended, self._took = time.perf_counter(), 0.0

    def is_due(self, round: int) -> bool:
        """Whether a checkpoint is due after a round. The choice of rounds does not affect results."""
        if round == self._rounds:
            return self._keep_last
        if not self._every or not 0 < round < self._rounds:
            return False
        if self._every == "auto":
            worked = time.perf_counter() - self._ended
            return not self._took or (worked >= LEAST_WORK and self._took <= SHARE_OF_TIME * worked)
        return round % self._every == 0

    def keep(
        self, round: int, content: Callable[[], dict[str, Any]], versions: Sequence[Versions], snapshot: Snapshot
    ) -> None:
        """Write the checkpoint of a round: the driver's content and the hosts' states of these versions.

        Raises OSError, leaving the previous checkpoint unchanged.
        """
        begun = time.perf_counter()
        try:
            shards = self._shards.write(round, versions, snapshot)
            save(self._folder, round, {**content(), "shards": shards})
            self._shards.drop_old()
        except OSError as error:
            raise OSError(f"checkpoint of round {round} could not be written: {first_line(error)}") from error
        finally:
            self._ended = time.perf_counter()
            self._took = self._ended - begun

    def shards(self, kept: dict[str, Any]) -> list[Path]:
        """The files with the states of a loaded checkpoint. Raises ConfigError if one is missing."""
        return self._shards.paths_of(kept["shards"])


def save(folder: Path, round: int, content: dict[str, Any]) -> None:
    """Write the checkpoint of a round and delete older ones. Raises OSError, leaving the older ones unchanged."""
    finished = _path(folder, round)
    unfinished = folder / f".{finished.name}{PART_SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        files = content.get("recorder", {}).get("files", {})  # beside the tree too, where readers of records see it
        trees.write({**content, "format": FORMAT}, unfinished, checked=True, files=files)
        flush(unfinished)
        unfinished.rename(finished)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    for old in {*_finished_checkpoints(folder), *folder.glob(f".{PREFIX}*{PART_SUFFIX}")} - {finished}:
        old.unlink(missing_ok=True)


def load(folder: Path) -> dict[str, Any] | None:
    """The content of the newest readable checkpoint, or None if there is no checkpoint.

    Raises ConfigError if none can be read or if another version of fedbench wrote it.
    """
    checkpoints = _finished_checkpoints(folder)
    for path in reversed(checkpoints):
        try:
            content = trees.read(path) if path.is_file() else {}
        except OSError:
            continue
        if content.pop("format", None) != FORMAT:
            line = "damaged, or written by another version of fedbench: continue with that one"
            raise ConfigError(f"{path}: {line}, or delete {folder.parent} to run it again")
        return content
    if checkpoints:
        raise damage_error(checkpoints[-1], "damaged", folder.parent)
    return None


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def remove_unless_last(folder: Path, rounds: int) -> None:
    """Remove the checkpoints of a finished run, which a killed command has left, but not that of its last round."""
    if not _path(folder, rounds).exists():
        remove(folder)


def is_one(name: str) -> bool:
    """Whether a file in a run's folder is a checkpoint, which must not exist before its shards."""
    return Path(name).name.startswith(PREFIX) and name.endswith(SUFFIX)


def _path(folder: Path, round: int) -> Path:
    return folder / f"{PREFIX}{round:06d}{SUFFIX}"


def _finished_checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*"))
