"""Partitions as files: what a run leaves, and what the scheme `file` reads.

A file holds `{"clients": [{"train": [rows], "val": [rows], "test": [rows]}, ...], "public": [rows]}`, `val` and
`public` being optional, or such an object for each seed: `{"0": {"clients": ...}, "1": ...}`. Rows count from 0 through
the data set's train part and then on through its test part, both in the source's order.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbench.errors import ConfigError

PARTS = ("train", "val", "test")


class Saved(NamedTuple):
    """The clients of a file, a dict of rows (int64) each, and its public rows, if any."""

    clients: list[dict[str, np.ndarray]]
    public: np.ndarray | None


def read(path: Path | None, seed: int, clients: int, rows: int) -> Saved:
    """The partition in a file, or that of a seed. rows: images of the data set. Raises ConfigError."""
    if path is None:
        raise ConfigError("partition file: partition.path is needed, for example --partition.path partition.json")
    tree = _of_seed(_load(path), seed, path)
    listed = tree.get("clients")
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"partition.path = {path}: `clients` must be a list of at least 1 object")
    if len(listed) != clients:
        raise ConfigError(
            f"partition.path = {path}: the file has {len(listed)} clients, partition.clients = {clients}; "
            f"set partition.clients {len(listed)}"
        )
    found = [_client(entry, rows, f"partition.path = {path}: client {i}") for i, entry in enumerate(listed)]
    public = tree.get("public")
    where = f"partition.path = {path}: public"
    return Saved(found, None if public is None else np.sort(_rows(public, rows, where)))


def _load(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"partition.path = {path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"partition.path = {path}: not valid JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"partition.path = {path}: an object with a list `clients` is expected")
    return tree


def _of_seed(tree: dict[str, Any], seed: int, path: Path) -> dict[str, Any]:
    """The whole file, or the part of a seed: a file that holds one seed serves all."""
    if "clients" in tree:
        return tree
    found = tree.get(str(seed)) or (next(iter(tree.values())) if len(tree) == 1 else None)
    if not isinstance(found, dict):
        raise ConfigError(
            f"partition.path = {path}: neither a list `clients` nor an entry for seed {seed} is there; "
            f"keys: {', '.join(list(tree)[:8]) or 'none'}"
        )
    return found


def _client(entry: Any, rows: int, where: str) -> dict[str, np.ndarray]:
    if not isinstance(entry, dict) or not {"train", "test"} <= set(entry) <= set(PARTS):
        keys = ", ".join(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
        raise ConfigError(f"{where} must be an object of `train`, `test` and perhaps `val`; it has {keys or 'nothing'}")
    found = {part: np.sort(_rows(values, rows, f"{where}: {part}")) for part, values in entry.items()}
    for part in ("train", "test"):
        if not len(found[part]):
            raise ConfigError(f"{where}: {part} has 0 rows; at least 1 is needed")
    for one, other in (("train", "test"), ("train", "val"), ("val", "test")):
        both = np.intersect1d(found.get(one, []), found.get(other, []))
        if len(both):
            raise ConfigError(f"{where}: row {int(both[0])} is in {one} and in {other} ({len(both)} such rows)")
    return found


def _rows(values: Any, rows: int, where: str) -> np.ndarray:
    whole = isinstance(values, list) and all(type(value) is int for value in values)
    if not whole:
        raise ConfigError(f"{where} must be a list of whole numbers >= 0")
    wrong = [value for value in values if not 0 <= value < rows]
    if wrong:
        raise ConfigError(f"{where}: row {wrong[0]} does not exist; the data set has rows 0 to {rows - 1}")
    return np.array(values, np.int64)
