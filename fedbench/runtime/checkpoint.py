"""Checkpoints: files `round-<t>.safetensors`, whole or absent, with the hosts' states in shards beside them."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from fedbench.errors import ConfigError, first_line
from fedbench.results.files import PART_SUFFIX, flush, rerun_hint
from fedbench.runtime import trees
from fedbench.runtime.shards import Shards, Snapshot
from fedbench.runtime.store import Versions

FORMAT = 4
"""Counted up with every change of what a checkpoint holds."""
PREFIX, SUFFIX = "round-", ".safetensors"
SHARE_OF_TIME = 0.05
"""Of a run's time that checkpoints may take where they come as often as that allows."""


class Checkpoints:
    """Those of a run under way.

    folder: in which they are; every: so many rounds, "auto", or 0 for none; rounds: of the run, whose last needs none.
    """

    def __init__(self, folder: Path, every: int | Literal["auto"], rounds: int) -> None:
        self._folder, self._every, self._rounds = folder, every, rounds
        self._shards = Shards(folder)
        self._ended, self._took = time.perf_counter(), 0.0

    def due(self, round: int) -> bool:
        """Whether there is one after a round. Which rounds have one changes no number of a run."""
        if not self._every or not 0 < round < self._rounds:
            return False
        if self._every == "auto":
            return self._took <= SHARE_OF_TIME * (time.perf_counter() - self._ended)
        return round % self._every == 0

    def keep(
        self, round: int, content: Callable[[], dict[str, Any]], versions: Sequence[Versions], snapshot: Snapshot
    ) -> None:
        """Write the checkpoint of a round: the driver's content, and the states of these versions at the hosts.

        Raises OSError, and leaves the one before as it was.
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
        """The files with the states of a checkpoint that was read. Raises ConfigError where one is gone."""
        return self._shards.named(kept["shards"])


def save(folder: Path, round: int, content: dict[str, Any]) -> None:
    """Write the checkpoint of a round and drop older ones. Raises OSError, and leaves the older ones as they were."""
    finished = folder / f"{PREFIX}{round:06d}{SUFFIX}"
    unfinished = folder / f".{finished.name}{PART_SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        trees.write({**content, "format": FORMAT}, unfinished)
        flush(unfinished)
        unfinished.rename(finished)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    for old in {*_finished(folder), *folder.glob(f".{PREFIX}*{PART_SUFFIX}")} - {finished}:
        old.unlink(missing_ok=True)


def load(folder: Path) -> dict[str, Any] | None:
    """What is in the newest checkpoint that can be read, or None where there is none.

    Raises ConfigError where none can be read, and for one that another version of fedbench wrote.
    """
    found = _finished(folder)
    for path in reversed(found):
        try:
            content = trees.read(path) if path.is_file() else {}
        except OSError:
            continue
        if content.pop("format", None) != FORMAT:
            line = "written by another version of fedbench, which can go on with it"
            raise ConfigError(f"{path}: {line}; delete {folder.parent} to run it anew")
        return content
    if found:
        raise ConfigError(f"{found[-1]}: damaged; {rerun_hint(folder.parent)}")
    return None


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def is_one(name: str) -> bool:
    """Whether a file in a run's folder is a checkpoint, which must not be there before its shards are."""
    return Path(name).name.startswith(PREFIX) and name.endswith(SUFFIX)


def _finished(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*"))
