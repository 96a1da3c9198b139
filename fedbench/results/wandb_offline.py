"""The offline parts of a W&B run: a folder for each start, with our own note of the rounds that a closed part holds."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from fedbench.results.files import read_json, write_json_atomically

PART_NOTE = "fedbench.json"
"""Written when W&B has closed a part. W&B may lose the last rounds of one that was never closed."""


def offline_parts(folder: Path, run_id: str) -> list[Path]:
    """The parts of a run, oldest first. W&B appends a number to the second part within a second."""
    found = [*folder.glob(f"wandb/offline-run-*-{run_id}"), *folder.glob(f"wandb/offline-run-*-{run_id}-[0-9]")]
    return sorted(found)


def note_last_round(part: Path, last: int) -> None:
    write_json_atomically(part / PART_NOTE, {"round": last})


def last_round(parts: Iterable[Path]) -> int | None:
    """The last round in the closed parts among these; -1 where none has one, None without parts."""
    return max((int(read_json(part / PART_NOTE, []).get("round", -1)) for part in parts), default=None)


def remove_unclosed(parts: Iterable[Path]) -> None:
    """Their rounds are logged again out of the records."""
    remove_parts(part for part in parts if not (part / PART_NOTE).exists())


def remove_parts(parts: Iterable[Path]) -> None:
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)
