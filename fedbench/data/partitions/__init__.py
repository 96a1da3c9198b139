"""Who holds which images: pure functions of labels, domains, options and a seed.

Every scheme deals training and test images to the clients so that a client's two parts have the same classes; then a
share of each client's training images is held out for validation. All row numbers index `Dataset.images`.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.noise import check_chosen
from fedbench.data.partitions import saved
from fedbench.data.partitions.classes import iid, pathological, shards
from fedbench.data.partitions.dirichlet import dirichlet, dirichlet_fixed, practical
from fedbench.data.partitions.domains import corruption, domain, domain_shards
from fedbench.data.partitions.holdings import (
    Deal,
    Holdings,
    Source,
    apportion,
    by_client,
    generator,
    in_pieces,
    ranks,
    repeated,
    together,
)
from fedbench.data.public import draw_public
from fedbench.errors import ConfigError


@dataclass(frozen=True, eq=False, slots=True)
class ClientRows:
    """Row numbers of one client, int64, ascending: training, validation and test images."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of every client, and those of the public set where there is one. seed: what it was drawn with."""

    clients: Sequence[ClientRows]
    public: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    seed: int = 0

    def fingerprint(self) -> str:
        """sha256 of all row numbers, in hexadecimal."""
        digest = hashlib.sha256()
        parts = [rows for client in self.clients for rows in (client.train, client.val, client.test)]
        for rows in [*parts, np.empty(0) if self.public is None else self.public]:
            digest.update(len(rows).to_bytes(8, "little") + rows.astype("<i8").tobytes())
        return digest.hexdigest()

    def class_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Training images per client and class, int64 [clients, classes], by the labels [rows] of the data set."""
        owners, count = _owners(client.train for client in self.clients), len(self.clients)
        cells = owners * classes + labels[np.concatenate([client.train for client in self.clients])]
        return np.bincount(cells, minlength=count * classes).reshape(count, classes)

    def tree(self) -> dict[str, Any]:
        """For JSON, as the scheme `file` reads it."""
        clients = [{part: getattr(rows, part).tolist() for part in saved.PARTS} for rows in self.clients]
        return {"clients": clients} | ({} if self.public is None else {"public": self.public.tolist()})

    def __reduce__(self) -> tuple:
        """Six flat arrays: a hundred thousand small ones would take a process seconds to send."""
        parts = [[getattr(client, part) for client in self.clients] for part in saved.PARTS]
        flat = [(np.concatenate(rows), np.array([len(own) for own in rows])) for rows in parts]
        return _unpacked, (flat, self.public, self.notes, self.seed)


def _unpacked(flat: list, public: np.ndarray | None, notes: tuple[str, ...], seed: int) -> Partition:
    parts = [in_pieces(rows, sizes) for rows, sizes in flat]
    return Partition([ClientRows(*rows) for rows in zip(*parts, strict=True)], public, notes, seed)


SCHEMES: dict[str, Callable[[Source, PartitionConfig, np.random.Generator], Deal]] = {
    "iid": iid,
    "shards": shards,
    "pathological": pathological,
    "dirichlet": dirichlet,
    "dirichlet-fixed": dirichlet_fixed,
    "practical": practical,
    "domain": domain,
    "domain-shards": domain_shards,
    "corruption": corruption,
}
POOLING = ("dirichlet", "practical")
SIZED = ("pathological", "dirichlet-fixed")
"""FedCAC's: its 500 training and 100 test images are the default."""
TESTS = {"test", "test_share", "total"}
SHARDS = {"classes", "deal", "images", "test_images"} | TESTS
CUT = {"alpha", "min_images", "max_draws", "test_size"} | TESTS
USED: dict[str, set[str]] = {
    "iid": {"train_size", "test_size"} | TESTS,
    "shards": SHARDS,
    "pathological": {"classes", "train_size", "test_size"} | TESTS,
    "dirichlet": CUT,
    "dirichlet-fixed": {"alpha", "train_size", "test_size"} | TESTS,
    "practical": CUT,
    "domain": {"train_size", "test_size"} | TESTS,
    "domain-shards": SHARDS,
    "corruption": SHARDS,
    "file": {"path", "test"},
}
"""What each scheme reads of the options that not all read."""


def partition(dataset: Dataset, config: Config, seed: int) -> Partition:
    """The partition of a run; `partition.seed` takes the place of the run's seed. Raises ConfigError.

    The public set leaves the train part first, so it is disjoint from every client.
    """
    config = config.model_copy(update={"partition": resolved(config.partition, dataset)})
    options = config.partition
    seed = seed if options.seed is None else options.seed
    check_chosen(options)
    if options.name == "file":
        return _from_file(dataset, config, seed)
    source, public = Source.of(dataset), None
    if config.public.size:
        public, reserved = draw_public(source, config.public, seed)
        source = source.without(reserved)
    train, test = SCHEMES[options.name](source, options, generator(seed, "deal"))
    val = held_for_validation(train, source.labels, config.data.val, generator(seed, "val"))
    notes = (*held_anew(source, options), *unused(options), *repeats(train, "training"), *repeats(test, "test"))
    return Partition(_clients(train, val, test, options.clients), public, notes, seed)


def resolved(options: PartitionConfig, dataset: Dataset) -> PartitionConfig:
    """The options with what the scheme and the data set decide filled in."""
    filled: dict[str, Any] = {}
    if options.test == "auto":
        one_part = dataset.train_rows in (0, len(dataset.labels))
        filled["test"] = "pooled" if one_part or options.name in POOLING else "part"
    if options.name in SIZED:
        filled |= {"train_size": options.train_size or 500, "test_size": options.test_size or 100}
    if options.test == "drawn":
        filled["test_size"] = options.test_size or 100
    return options.model_copy(update=filled)


def _clients(train: Holdings, val: np.ndarray, test: Holdings, count: int) -> list[ClientRows]:
    parts = (Holdings(train.rows[~val], train.owners[~val]), Holdings(train.rows[val], train.owners[val]), test)
    return [ClientRows(*rows) for rows in zip(*(by_client(part, count) for part in parts), strict=True)]


def _from_file(dataset: Dataset, config: Config, seed: int) -> Partition:
    """Clients that bring no validation part have one held out; a public set that the file lacks is drawn."""
    options = config.partition
    found = saved.read(options.path, seed, options.clients, len(dataset.labels))
    train, val, test = (
        _holdings(client.get(part, np.empty(0, np.int64)) for client in found.clients) for part in saved.PARTS
    )
    bring_none = np.array(["val" not in client for client in found.clients])
    held = held_for_validation(train, dataset.labels, config.data.val, generator(seed, "val"))
    held &= bring_none[train.owners]
    whole = together([train, val])
    clients = _clients(whole, np.concatenate([held, np.ones(len(val.rows), bool)]), test, options.clients)
    public = _public_beside(Source.of(dataset), np.concatenate([whole.rows, test.rows]), found.public, config, seed)
    notes = (*unused(options), *repeats(whole, "training"), *repeats(test, "test"))
    return Partition(clients, public, notes, seed)


def _public_beside(
    source: Source, taken: np.ndarray, public: np.ndarray | None, config: Config, seed: int
) -> np.ndarray | None:
    """The file's public set, or one drawn from the training images that the file leaves over."""
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


def _holdings(rows: Iterable[np.ndarray]) -> Holdings:
    listed = list(rows)
    return Holdings(np.concatenate(listed), _owners(listed))


def _owners(rows: Iterable[np.ndarray]) -> np.ndarray:
    sizes = [len(own) for own in rows]
    return np.repeat(np.arange(len(sizes)), sizes)


def held_for_validation(train: Holdings, labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """bool [n]: round(share * k) of each client's k different training images, at least 1 and at most k - 1 of them.

    None where share is 0 or k is 1. The classes keep their proportions up to rounding. An image that a client holds
    more than once goes to one side with all its copies.
    """
    order = np.argsort(train.owners * len(labels) + train.rows)
    rows, owners = train.rows[order], train.owners[order]
    first = (np.diff(rows, prepend=-1) != 0) | (np.diff(owners, prepend=-1) != 0)
    images = np.bincount(owners[first])
    wanted = np.minimum(np.maximum(1, (share * images + 0.5).astype(np.int64)), images - 1)
    wanted = np.where((share == 0) | (images < 2), 0, wanted)
    classes = int(labels.max()) + 1
    cells, group = np.unique(owners[first] * classes + labels[rows[first]], return_inverse=True)
    counts = apportion(np.bincount(group), cells // classes, wanted, rng)
    chosen = ranks(group, rng) < counts[group]
    held = np.empty(len(rows), bool)
    held[order] = chosen[np.cumsum(first) - 1]
    return held


def repeats(hands: Holdings, part: str) -> Iterator[str]:
    """One sentence where a client holds an image more than once."""
    twice = np.unique(hands.owners[repeated(hands.owners, hands.rows)])
    if len(twice):
        yield (
            f"{len(twice)} clients (the first: {twice[0]}) hold some {part} images more than once, "
            "because their share of a class is larger than the class"
        )


def held_anew(source: Source, options: PartitionConfig) -> Iterator[str]:
    """One sentence where the data set brings no test images of its own."""
    if source.one_part:
        yield f"the data set is not split: {options.test_share:.0%} of its images are held out for testing"


def unused(options: PartitionConfig) -> Iterator[str]:
    """One sentence for each option that was set and that the scheme does not read."""
    defaults = PartitionConfig()
    for key in sorted(set().union(*USED.values()) - USED[options.name]):
        value = getattr(options, key)
        if value != getattr(defaults, key):
            yield f"partition.{key} = {value} changes nothing: partition {options.name} does not use it"
