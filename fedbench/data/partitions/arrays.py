"""Partitions of many clients as files of flat arrays, which are fast to read.

A file (`.npz`) has for every seed the int64 array `SEED/train`, the rows of one client after the other, and
`SEED/train_sizes`, their numbers; likewise for `val` and `test`; and `SEED/public` if there is a public set. Newcomers
have such arrays too, `SEED/newcomers_train` and so on.
"""

from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Assignment
from fedbench.data.partitions.rows import NEWCOMERS, PARTITION_PARTS
from fedbench.errors import ConfigError

SUFFIX = ".npz"
ARRAYS = tuple(f"{part}{more}" for part in PARTITION_PARTS for more in ("", "_sizes"))
"""The names of a partition's arrays."""


class SavedPartition(NamedTuple):
    """The content of a file. bring_none: bool [clients], clients without their own validation part.

    newcomers: how many of these clients, the last ones, are newcomers according to the file.
    """

    train: Assignment
    val: Assignment
    test: Assignment
    bring_none: np.ndarray
    newcomers: int
    public: np.ndarray | None


def partition_from_arrays(path: Path, seed: int, options: PartitionConfig, rows: int) -> SavedPartition:
    """The partition in a file, or its part for a seed. rows: images of the data set. Raises ConfigError."""
    found, where = _of_seed(path, seed), f"partition.path = {path}"
    later = {name: found.pop(name) for name in [*found] if name.startswith(NEWCOMERS)}
    newcomers = 0
    if later and options.new_clients:
        newcomers = len(later[f"{NEWCOMERS}train_sizes"])
        found |= {name: np.concatenate([found[name], later[f"{NEWCOMERS}{name}"]]) for name in ARRAYS}
    for name, array in found.items():
        if array.ndim != 1 or array.dtype != np.int64 or (name.endswith("_sizes") and array.min(initial=0) < 0):
            raise ConfigError(f"{where}: {name} must be whole numbers (int64) in one dimension")
        wrong = np.empty(0) if name.endswith("_sizes") else array[(array < 0) | (array >= rows)]
        if len(wrong):
            known = f"the data set has rows 0 to {rows - 1}"
            raise ConfigError(f"{where}: row {wrong[0]} of {name} does not exist; {known}")
    sizes = [found[f"{part}_sizes"] for part in PARTITION_PARTS]
    clients = options.clients
    check_client_count(path, len(sizes[0]) - newcomers, newcomers, options)
    held = []
    for part, own in zip(PARTITION_PARTS, sizes, strict=True):
        if len(own) != clients or own.sum() != len(found[part]):
            raise ConfigError(f"{where}: {part}_sizes does not say who of {clients} clients has which rows of {part}")
        if part != "val" and not own.all():
            raise ConfigError(f"{where}: client {own.argmin()}: {part} has 0 rows; at least 1 is needed")
        held.append(Assignment(found[part], np.repeat(np.arange(clients), own)))
    _check_apart(where, held, rows)
    public = found.get("public")
    train, val, test = held
    public = None if public is None else np.sort(public)
    return SavedPartition(train, val, test, np.zeros(clients, bool), newcomers, public)


def _of_seed(path: Path, seed: int) -> dict[str, np.ndarray]:
    """The arrays of a seed by name; a file with one seed is used for every seed."""
    try:
        with np.load(path) as file:
            seeds = {name.partition("/")[0] for name in file.files}
            own = seeds.pop() if len(seeds) == 1 else str(seed)
            more = ["public", *(f"{NEWCOMERS}{name}" for name in ARRAYS)]
            names = [*ARRAYS, *(name for name in more if f"{own}/{name}" in file.files)]
            return {name: file[f"{own}/{name}"] for name in names}
    except OSError as error:
        raise ConfigError(f"partition.path = {path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, ValueError, EOFError, BadZipFile) as error:
        raise ConfigError(f"partition.path = {path}: no complete partition for seed {seed} ({error})") from None


def _check_apart(where: str, held: list[Assignment], rows: int) -> None:
    """Raises ConfigError if a client has a row in two parts."""
    known = [np.unique(own.owners * rows + own.rows) for own in held]
    for one, other in ((0, 2), (0, 1), (1, 2)):
        both = np.intersect1d(known[one], known[other], assume_unique=True)
        if len(both):
            client, row = divmod(int(both[0]), rows)
            raise ConfigError(
                f"{where}: client {client}: row {row} is in {PARTITION_PARTS[one]} and in {PARTITION_PARTS[other]}"
            )


def check_client_count(path: Path, held: int, newcomers: int, options: PartitionConfig) -> None:
    """Raises ConfigError if the file's number of clients, or of its newcomers, differs from the configuration."""
    total, clients = held + newcomers, options.clients
    if total != clients:
        whom = f"{total} clients, {newcomers} of them newcomers" if newcomers else f"{held} clients"
        raise ConfigError(
            f"partition.path = {path}: the file has {whom}, partition.clients = {clients}; "
            f"set partition.clients {total}"
        )
    if newcomers not in (0, clients - options.trained_clients):
        raise ConfigError(
            f"partition.path = {path}: the file has {newcomers} newcomers, partition.new_clients = "
            f"{options.new_clients:g}; set partition.new_clients {newcomers}"
        )
