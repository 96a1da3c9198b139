"""Partitions from files: `--partition file` reads what a run writes.

A file holds `{"clients": [{"train": [rows], "val": [rows], "test": [rows]}, ...], "public": [rows]}`, with optional
`val` and `public`, or such an object for each seed: `{"0": {"clients": ...}, "1": ...}`. Rows are numbered from 0
through the data set's train part and then its test part, both in the source's order. Partitions of many clients are
flat arrays instead (arrays.py). `newcomers`, a list like `clients`, is read with `partition.new_clients` only.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.arrays import SUFFIX, SavedPartition, check_client_count, partition_from_arrays
from fedbench.data.partitions.assignment import (
    Assignment,
    SamplePool,
    join_assignments,
    random_stream,
    repeated_image_warnings,
)
from fedbench.data.partitions.newcomers import with_newcomers
from fedbench.data.partitions.public import draw_public
from fedbench.data.partitions.rows import PARTITION_PARTS, Partition, client_rows
from fedbench.data.partitions.scheme import unused_key_warnings
from fedbench.data.partitions.validation import draw_validation
from fedbench.errors import ConfigError, first_line


def partition_from_file(dataset: Dataset, config: Config, seed: int) -> Partition:
    """The partition in a file. A client's rows keep their order.

    Clients without a validation part have one held out; a missing public set is drawn.
    """
    options = config.partition
    found = read_partition(options.path, seed, options, len(dataset.targets))
    train, val, test = found.train, found.val, found.test
    source = SamplePool.of(dataset)
    held = draw_validation(train, source.labels, config.data.val, random_stream(seed, "val"))
    held &= found.bring_none[train.owners]
    whole = join_assignments([train, val])
    in_val = np.concatenate([held, np.ones(len(val.rows), bool)])
    clients = client_rows(whole, in_val, test, options.clients, sort=False)
    public = _public_beside(source, np.concatenate([whole.rows, test.rows]), found.public, config, seed)
    twice = (*repeated_image_warnings(whole, "training", ""), *repeated_image_warnings(test, "test", ""))
    warnings = *unused_key_warnings(options), *twice, *_learnt_elsewhere(whole, test)
    return with_newcomers(Partition(clients, public, warnings, seed), options, last=bool(found.newcomers))


def _learnt_elsewhere(train: Assignment, test: Assignment) -> Iterator[str]:
    """One sentence if a client is tested on images that another one trains on; its own parts are always disjoint."""
    both = np.intersect1d(train.rows, test.rows)
    if len(both):
        yield (
            f"partition.path: {len(both)} of {len(np.unique(test.rows))} test samples (the first: row {both[0]}) are "
            "training or validation samples of another client: what is shared may have learnt them"
        )


def _public_beside(
    source: SamplePool, taken: np.ndarray, public: np.ndarray | None, config: Config, seed: int
) -> np.ndarray | None:
    """The file's public set, or one drawn from the training images that no client holds."""
    size = config.public.size
    if not size:
        return None
    if public is None:
        return draw_public(source.without(taken), config.public, seed)[0]
    if len(public) != size:
        raise ConfigError(f"public.size = {size}: the file of partition.path has {len(public)} public rows")
    both = np.intersect1d(public, taken)
    if len(both):
        raise ConfigError(f"partition.path: row {both[0]} is public and held by a client ({len(both)} such rows)")
    return public


def read_partition(path: Path | None, seed: int, options: PartitionConfig, rows: int) -> SavedPartition:
    """The partition in a file, or its part for a seed. rows: images of the data set. Raises ConfigError."""
    if path is None:
        raise ConfigError("partition file: set partition.path, for example --partition.path partition.json")
    if path.suffix == SUFFIX:
        return partition_from_arrays(path, seed, options, rows)
    tree = _of_seed(_load(path), seed, path)
    listed, later = tree.get("clients"), tree.get("newcomers", []) if options.new_clients else []
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"partition.path = {path}: `clients` must be a list of at least 1 object")
    if not isinstance(later, list):
        raise ConfigError(f"partition.path = {path}: `newcomers` must be a list of objects")
    check_client_count(path, len(listed), len(later), options)
    listed = [*listed, *later]
    found = [_client(entry, rows, f"partition.path = {path}: client {i}") for i, entry in enumerate(listed)]
    public = tree.get("public")
    train, val, test = (
        _assignment([client.get(part, np.empty(0, np.int64)) for client in found]) for part in PARTITION_PARTS
    )
    return SavedPartition(
        train,
        val,
        test,
        np.array(["val" not in client for client in found]),
        len(later),
        None if public is None else np.sort(_rows(public, rows, f"partition.path = {path}: public")),
    )


def _assignment(rows: list[np.ndarray]) -> Assignment:
    return Assignment(np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(own) for own in rows]))


def _load(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"partition.path = {path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"partition.path = {path}: not valid JSON ({first_line(error)})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"partition.path = {path}: expected an object with a list `clients`")
    return tree


def _of_seed(tree: dict[str, Any], seed: int, path: Path) -> dict[str, Any]:
    """The whole file, or its part for a seed; a file with one seed is used for every seed."""
    if "clients" in tree:
        return tree
    found = tree.get(str(seed)) or (next(iter(tree.values())) if len(tree) == 1 else None)
    if not isinstance(found, dict):
        raise ConfigError(
            f"partition.path = {path}: has neither a list `clients` nor an entry for seed {seed}; "
            f"keys: {', '.join(list(tree)[:8]) or 'none'}"
        )
    return found


def _client(entry: Any, rows: int, where: str) -> dict[str, np.ndarray]:
    if not isinstance(entry, dict) or not {"train", "test"} <= set(entry) <= set(PARTITION_PARTS):
        keys = ", ".join(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
        raise ConfigError(f"{where} must be an object of `train`, `test` and perhaps `val`; it has {keys or 'nothing'}")
    found = {part: _rows(values, rows, f"{where}: {part}") for part, values in entry.items()}
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
