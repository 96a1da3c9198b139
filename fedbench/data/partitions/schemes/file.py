"""The partition in a file, such as one that a run has written.

A file holds `{"clients": [{"train": [rows], "val": [rows], "test": [rows]}, ...], "public": [rows]}`, with optional
`val` and `public`, or such an object for each seed: `{"0": {"clients": ...}, "1": ...}`. Rows are numbered from 0
through the data set's train part and then its test part, both in the source's order; those of data of one part as they
lie. `parts`, which a run writes, has the numbers of rows of both parts. `newcomers`, a list like `clients`, is read
with `partition.new_clients` only.

Partitions of many clients are flat arrays instead, which are fast to read. Such a file (`.npz`) has for every seed the
int64 array `SEED/train`, the rows of one client after the other, and `SEED/train_sizes`, their numbers; likewise for
`val` and `test`; and `SEED/public` if there is a public set. Newcomers have such arrays too, `SEED/newcomers_train` and
so on.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.config.words import plural
from fedbench.data.partitions.assignment import Assignment, join_assignments, random_stream, repeated_image_warnings
from fedbench.data.partitions.newcomers import with_newcomers
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.public import draw_public
from fedbench.data.partitions.rows import NEWCOMERS, PARTITION_PARTS, Partition, client_rows
from fedbench.data.partitions.scheme import Scheme, unused_key_warnings
from fedbench.data.partitions.validation import hold_out_validation
from fedbench.errors import ConfigError, first_line

ARRAYS = tuple(f"{part}{more}" for part in PARTITION_PARTS for more in ("", "_sizes"))
"""The names of a partition's arrays."""


class SavedPartition(NamedTuple):
    """The content of a file: the rows of train, val and test.

    bring_none: bool [clients], clients without their own validation part. newcomers: how many of these clients, the
    last ones, are newcomers according to the file. sizes: of the data's two parts according to the file, if it says
    them.
    """

    parts: dict[str, Assignment]
    bring_none: np.ndarray
    newcomers: int
    public: np.ndarray | None
    sizes: list[int] | None


def read_partition(source: SamplePool, config: Config, seed: int) -> Partition:
    """The partition in a file. A client's rows keep their order.

    Clients without a validation part have one held out; a missing public set is drawn.
    """
    options, rows = config.partition, len(source.labels)
    if options.path is None:
        raise ConfigError("partition file: set partition.path, for example --partition.path partition.json")
    read = from_arrays if options.path.suffix == ".npz" else from_json
    saved = read(options.path, seed, options, rows)
    _check_numbering(saved, options, source)
    _check_parts(saved, options, rows)
    train, val, test = saved.parts.values()
    is_val = hold_out_validation(train, source, config, random_stream(seed, "val"))[1]
    is_val &= saved.bring_none[train.owners]
    whole = join_assignments([train, val])
    in_val = np.concatenate([is_val, np.ones(len(val.rows), bool)])
    clients = client_rows(whole, in_val, test, options.clients, sort=False)
    public = _public_beside(source, np.concatenate([whole.rows, test.rows]), saved.public, config, seed)
    twice = (*repeated_image_warnings(whole, "training", ""), *repeated_image_warnings(test, "test", ""))
    warnings = *unused_key_warnings(options), *twice, *_learnt_elsewhere(whole, test)
    return with_newcomers(Partition(clients, public, warnings, seed), options, last=bool(saved.newcomers))


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


def from_arrays(path: Path, seed: int, options: PartitionConfig, rows: int) -> SavedPartition:
    """The partition in a file, or its part for a seed. rows: images of the data set. Raises ConfigError."""
    arrays, where = _arrays_of_seed(path, seed), f"partition.path = {path}"
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype != np.int64 or (name.endswith("_sizes") and array.min(initial=0) < 0):
            raise ConfigError(f"{where}: {name} must be whole numbers (int64) in one dimension")
        wrong = np.empty(0) if name.endswith(("_sizes", "parts")) else array[(array < 0) | (array >= rows)]
        if len(wrong):
            known = f"the data set has rows 0 to {rows - 1}"
            raise ConfigError(f"{where}: row {wrong[0]} of {name} does not exist; {known}")
    newcomers = 0
    if options.new_clients and f"{NEWCOMERS}train" in arrays:
        newcomers = len(arrays[f"{NEWCOMERS}train_sizes"])
        arrays |= {name: np.concatenate([arrays[name], arrays[f"{NEWCOMERS}{name}"]]) for name in ARRAYS}
    clients, parts = options.clients, dict[str, Assignment]()
    check_client_count(len(arrays["train_sizes"]) - newcomers, newcomers, options)
    for part in PARTITION_PARTS:
        rows_of_part, sizes = arrays[part], arrays[f"{part}_sizes"]
        if len(sizes) != clients or sizes.sum() != len(rows_of_part):
            raise ConfigError(f"{where}: {part}_sizes does not say who of {clients} clients has which rows of {part}")
        parts[part] = Assignment(rows_of_part, np.repeat(np.arange(clients), sizes))
    public = np.sort(arrays["public"]) if "public" in arrays else None
    numbered: list[int] | None = arrays["parts"].tolist() if "parts" in arrays else None
    return SavedPartition(parts, np.zeros(clients, bool), newcomers, public, numbered)


def _arrays_of_seed(path: Path, seed: int) -> dict[str, np.ndarray]:
    """The arrays of a seed by name; a file with one seed is used for every seed."""
    try:
        with np.load(path) as file:
            seeds = {name.partition("/")[0] for name in file.files}
            name_of_seed = seeds.pop() if len(seeds) == 1 else str(seed)
            names = [*ARRAYS, *(name for name in ("public", "parts") if f"{name_of_seed}/{name}" in file.files)]
            if f"{name_of_seed}/{NEWCOMERS}train" in file.files:
                names += [f"{NEWCOMERS}{name}" for name in ARRAYS]
            return {name: file[f"{name_of_seed}/{name}"] for name in names}
    except OSError as error:
        raise ConfigError(f"partition.path = {path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, ValueError, EOFError, BadZipFile) as error:
        raise ConfigError(f"partition.path = {path}: no complete partition for seed {seed} ({error})") from None


def from_json(path: Path, seed: int, options: PartitionConfig, rows: int) -> SavedPartition:
    """The partition in a file, or its part for a seed. rows: images of the data set. Raises ConfigError."""
    where, tree = f"partition.path = {path}", _json_of_seed(path, seed)
    listed, later = tree.get("clients"), tree.get("newcomers", []) if options.new_clients else []
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{where}: `clients` must be a list of at least 1 object")
    if not isinstance(later, list):
        raise ConfigError(f"{where}: `newcomers` must be a list of objects")
    check_client_count(len(listed), len(later), options)
    clients = [_client(entry, rows, f"{where}: client {i}") for i, entry in enumerate([*listed, *later])]
    parts = {}
    for part in PARTITION_PARTS:
        by_client = [client.get(part, np.empty(0, np.int64)) for client in clients]
        owners = np.repeat(np.arange(len(by_client)), [len(each) for each in by_client])
        parts[part] = Assignment(np.concatenate(by_client), owners)
    public = tree.get("public")
    public = None if public is None else np.sort(_rows(public, rows, f"{where}: public"))
    bring_none = np.array(["val" not in client for client in clients])
    return SavedPartition(parts, bring_none, len(later), public, tree.get("parts"))


def _json_of_seed(path: Path, seed: int) -> dict[str, Any]:
    """The whole file, or its part for a seed; a file with one seed is used for every seed."""
    where = f"partition.path = {path}"
    try:
        tree = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid JSON ({first_line(error)})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: expected an object with a list `clients`")
    if "clients" in tree:
        return tree
    part = tree.get(str(seed)) or (next(iter(tree.values())) if len(tree) == 1 else None)
    if not isinstance(part, dict):
        raise ConfigError(
            f"{where}: has neither a list `clients` nor an entry for seed {seed}; "
            f"keys: {', '.join(list(tree)[:8]) or 'none'}"
        )
    return part


def _client(entry: Any, rows: int, where: str) -> dict[str, np.ndarray]:
    if not isinstance(entry, dict) or not {"train", "test"} <= set(entry) <= set(PARTITION_PARTS):
        keys = ", ".join(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
        raise ConfigError(f"{where} must be an object of `train`, `test` and perhaps `val`; it has {keys or 'nothing'}")
    return {part: _rows(values, rows, f"{where}: {part}") for part, values in entry.items()}


def _rows(values: Any, rows: int, where: str) -> np.ndarray:
    whole = isinstance(values, list) and all(type(value) is int for value in values)
    if not whole:
        raise ConfigError(f"{where} must be a list of whole numbers >= 0")
    wrong = [value for value in values if not 0 <= value < rows]
    if wrong:
        raise ConfigError(f"{where}: row {wrong[0]} does not exist; the data set has rows 0 to {rows - 1}")
    return np.array(values, np.int64)


def check_client_count(held: int, newcomers: int, options: PartitionConfig) -> None:
    """Raises ConfigError if the file's number of clients, or of its newcomers, differs from the configuration."""
    total, clients = held + newcomers, options.clients
    if total != clients:
        whom = f"{total} clients, {newcomers} of them newcomers" if newcomers else plural(held, "client")
        raise ConfigError(
            f"partition.path = {options.path}: the file has {whom}, partition.clients = {clients}; "
            f"set partition.clients {total}"
        )
    if newcomers not in (0, clients - options.trained_clients):
        raise ConfigError(
            f"partition.path = {options.path}: the file has {newcomers} newcomers, partition.new_clients = "
            f"{options.new_clients:g}; set partition.new_clients {newcomers}"
        )


def _check_numbering(partition: SavedPartition, options: PartitionConfig, source: SamplePool) -> None:
    """Raises ConfigError if the file numbers the rows of other parts."""
    now = [len(source.train), len(source.test)]
    if partition.sizes not in (None, now):
        raise ConfigError(
            f"partition.path = {options.path}: it numbers the rows of data with parts of {partition.sizes} rows, and "
            f"these have {now}; take the data of the run that wrote it"
        )


def _check_parts(partition: SavedPartition, options: PartitionConfig, rows: int) -> None:
    """Raises ConfigError if a client has nothing to train or test on, or a row in two parts."""
    where = f"partition.path = {options.path}: client"
    for part in ("train", "test"):
        sizes = np.bincount(partition.parts[part].owners, minlength=options.clients)
        if not sizes.all():
            raise ConfigError(f"{where} {sizes.argmin()}: {part} has 0 rows; at least 1 is needed")
    cells = {part: np.unique(hands.owners * rows + hands.rows) for part, hands in partition.parts.items()}
    for one, other in (("train", "test"), ("train", "val"), ("val", "test")):
        both = np.intersect1d(cells[one], cells[other], assume_unique=True)
        if len(both):
            client, row = divmod(int(both[0]), rows)
            count = int((both // rows == client).sum())
            raise ConfigError(f"{where} {client}: row {row} is in {one} and in {other} ({count} such rows)")


SCHEME = Scheme(whole=read_partition, reads=("path",), drawn=True, classless=True, headline=("path",))
