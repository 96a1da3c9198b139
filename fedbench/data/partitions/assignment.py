"""Flat arrays of assignments, and random choices within groups: the tools of all partition schemes.

Nothing here loops over clients or images in Python, so 100,000 clients take seconds. All randomness comes from PCG64
streams, whose integers and doubles are the same on every platform.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.config.words import plural
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.held_out import draw_by_class, draw_groups, last_of_each
from fedbench.data.reading.beside import DOMAIN
from fedbench.errors import ConfigError

DENSE = 4
"""Choices of more than one in DENSE shuffle all numbers; others draw until all differ."""
MERGING = ("stratified", "last", "pooled")
"""The values of `partition.test` under which all parts are one, of which test samples are held out."""


class Assignment(NamedTuple):
    """One part of a partition. rows, owners: int64 [n], one entry per image of a client."""

    rows: np.ndarray
    owners: np.ndarray

    def chosen(self, which: np.ndarray) -> "Assignment":
        """Some of the entries, bool [n]."""
        return Assignment(self.rows[which], self.owners[which])


Deal = tuple[Assignment, Assignment]
"""Training (validation included) and test images of all clients."""


@dataclass(frozen=True, eq=False)
class SamplePool:
    """The samples to distribute.

    labels, domains: int64 [rows] of the whole data set; without classes all labels are 0, without domains all domains
    are 0, without a name. numbers: the data set's number of each class that occurs, int64 [classes]. train, test: the
    rows of the two parts that clients may get, int64, ascending. val_rows: the rows of the data set's own validation
    part, if any, which are training rows too. one_part: the data set has no other part. known: it is one of fedbench's
    own, by name. groups, order: int64 [rows], the columns that `partition.test_by` and `partition.order_by` name, if
    any. extent: how far a sample reaches, in units of the order. reserved: rows that were withheld from clients.
    """

    labels: np.ndarray
    domains: np.ndarray
    numbers: np.ndarray
    domain_names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray
    val_rows: range
    one_part: bool
    known: bool
    groups: np.ndarray | None = None
    order: np.ndarray | None = None
    extent: int = 0
    reserved: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, dataset: Dataset) -> "SamplePool":
        rows, named = np.arange(len(dataset.targets)), dataset.domains is not None
        nought = np.zeros(len(rows), np.int64)
        numbers, labels = distinct_values(dataset.labels if dataset.classes else nought)
        return cls(
            labels,
            np.asarray(dataset.domains) if named else nought,
            numbers,
            tuple(dataset.domain_names) if named else (),
            rows[: dataset.train_rows],
            rows[dataset.train_rows :],
            range(dataset.train_rows - dataset.val_rows, dataset.train_rows),
            dataset.one_part,
            dataset.is_known,
            dataset.groups,
            dataset.order,
            dataset.extent,
        )

    @property
    def classes(self) -> int:
        """The number of classes with samples; schemes assign only these."""
        return len(self.numbers)

    def without(self, rows: np.ndarray) -> "SamplePool":
        """The samples without these rows."""
        train, test = (own[~np.isin(own, rows)] for own in (self.train, self.test))
        return replace(self, train=train, test=test, reserved=rows)

    def in_domain(self, domain: int) -> "SamplePool":
        train, test = (rows[self.domains[rows] == domain] for rows in (self.train, self.test))
        return replace(self, train=train, test=test)

    def cells(self, rows: np.ndarray) -> np.ndarray:
        """A number for the domain and class of each row."""
        return self.domains[rows] * self.classes + self.labels[rows]

    def by_class(self, rows: np.ndarray) -> list[np.ndarray]:
        """These rows by class, ascending."""
        return np.split(rows[np.argsort(self.labels[rows], kind="stable")], np.cumsum(self.class_sizes(rows))[:-1])

    def class_sizes(self, rows: np.ndarray) -> np.ndarray:
        """The number of these rows in each class, int64 [classes]."""
        return np.bincount(self.labels[rows], minlength=self.classes)


def random_stream(seed: int, *stream: int | str) -> np.random.Generator:
    """The random stream of this name; the same on every platform."""
    digest = hashlib.sha256(repr(("partition", seed, *stream)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def merges_parts(source: SamplePool, options: PartitionConfig) -> bool:
    """Whether parts are merged and test images held out again. Raises ConfigError if the data lack a part."""
    if source.one_part and options.test not in MERGING:
        part = "test" if len(source.train) else "training"
        raise ConfigError(
            f"partition.test = {options.test}: the data have 0 {part} samples; set partition.test stratified"
        )
    return options.test in MERGING


def groups_of(source: SamplePool, options: PartitionConfig) -> np.ndarray | None:
    """The group of every row by `partition.test_by`, int64 [rows]; None if it is not set. Raises ConfigError."""
    if not options.test_by or source.groups is not None:
        return source.groups if options.test_by else None
    if options.test_by != DOMAIN or not source.domain_names:
        raise ConfigError(
            f"partition.test_by = {options.test_by}: the data have neither such a column nor domains; leave it out"
        )
    return source.domains


def parts_to_deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> SamplePool:
    """The parts to distribute: unchanged, or merged and split again within each domain and class."""
    source = draw_total(source, options, rng)
    if not merges_parts(source, options):
        return source
    rows, classes, domains = source.train, source.labels[source.train], source.domains[source.train]
    if options.test == "pooled":
        train, test = split_hands(Assignment(rows, source.cells(rows)), classes, source, options, rng)
    elif options.test == "last":
        train, test = split_hands(Assignment(rows, domains), classes, source, options, rng, least=0)
    else:  # classes first: of domains of few samples some have none for testing, but no class lacks them
        train, test = split_hands(Assignment(rows, classes), domains, source, options, rng)
    return replace(source, train=train.rows, test=test.rows)


def split_hands(
    hands: Assignment,
    classes: np.ndarray,
    source: SamplePool,
    options: PartitionConfig,
    rng: np.random.Generator,
    least: int = 1,
) -> Deal:
    """What owners train and are tested on, of what they have. classes: of their samples, kept in proportion.

    Samples that overlap the last ones are in neither. least: as in `last_of_each`.
    """
    rows, owners = hands
    if options.test == "pooled":
        held = draw_held_out(hands, options.test_share, rng)
    elif options.test == "last":
        held, overlapping = last_of_each(
            owners, places_in_order(source)[rows], source.extent, options.test_share, least
        )
        return hands.chosen(~held & ~overlapping), hands.chosen(held)
    elif (groups := groups_of(source, options)) is not None:
        stay = np.unique(groups[source.reserved])
        held = draw_groups(groups[rows], owners, classes, options.test_share, rng, stay)
    else:
        held = draw_by_class(owners, classes, options.test_share, rng)
    return hands.chosen(~held), hands.chosen(held)


def places_in_order(source: SamplePool) -> np.ndarray:
    """The place of every row in the order in which the last samples are the last, int64 [rows]."""
    return np.arange(len(source.labels)) if source.order is None else source.order


def draw_total(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> SamplePool:
    """`partition.total` random images of the train part, with domains and classes in proportion; all if not set.

    If the parts are pooled, all images count and the kept ones are in `train`.
    """
    if merges_parts(source, options):
        source = replace(source, train=np.concatenate([source.train, source.test]), test=source.test[:0])
    rows, total = source.train, options.total
    if total is None:
        return source
    if total > len(rows):
        raise ConfigError(f"partition.total = {total}: there are {len(rows)} samples; choose at most that many")
    cells = source.cells(rows)
    sizes = np.bincount(cells)
    counts = apportion(sizes, np.zeros(len(sizes), np.int64), np.array([total]), rng)
    return replace(source, train=rows[random_ranks(cells, rng) < counts[cells]])


def draw_held_out(holdings: Assignment, share: float, rng: np.random.Generator) -> np.ndarray:
    """int(share * size) random images of every owner, bool [n]."""
    sizes = np.bincount(holdings.owners)
    return random_ranks(holdings.owners, rng) < (sizes * share).astype(np.int64)[holdings.owners]


def distinct_values(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, ascending, and the position of each value among them, int64 [n].

    values: integers >= 0 [n] that are not much larger than n: this counts them, which is faster than to sort them.
    """
    counts = np.bincount(values)
    return np.flatnonzero(counts), (np.cumsum(counts > 0) - 1)[values]


def random_ranks(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order within each group: 0, 1, ... for its elements, int64 [n]. groups: integers >= 0 [n]."""
    order = np.argsort(
        groups * len(groups) + rng.permutation(len(groups))
    )  # all keys differ, so the order is the same everywhere
    out = np.empty(len(groups), np.int64)
    out[order] = positions_in_runs(groups[order])
    return out


def positions_in_runs(groups: np.ndarray) -> np.ndarray:
    """0, 1, ... in each run of equal numbers, int64 [n]."""
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - np.repeat(begins, np.diff(begins, append=len(groups)))


def apportion(sizes: np.ndarray, owners: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Integers [groups] that sum to what each owner wants, in proportion to the sizes of the owner's groups.

    Largest remainder, ties at random. sizes, owners: int64 [groups]. wanted: int64 [owners].
    """
    totals = np.bincount(owners, weights=sizes, minlength=len(wanted)).astype(np.int64).clip(1)
    # In units of 1 / total, so that remainders are integers and compare exactly.
    counts, remainders = np.divmod(sizes * wanted[owners], totals[owners])
    missing = wanted - np.bincount(owners, weights=counts, minlength=len(wanted)).astype(np.int64)
    order = _by_owner_and_remainder(owners, remainders, rng.random(len(sizes)))
    lucky = positions_in_runs(owners[order]) < missing[owners[order]]
    counts[order[lucky]] += 1
    return counts


def _by_owner_and_remainder(owners: np.ndarray, remainders: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """The order by owner, then from the largest remainder to the smallest, then by chance; int64 [groups]."""
    width = int(remainders.max(initial=0)) + 1
    if (int(owners.max(initial=0)) + 1) * width * len(owners) >= 2**63:
        return np.lexsort((chance, -remainders, owners))
    # One key per group, which sorts in a fraction of the time of three.
    ranks = np.empty(len(owners), np.int64)
    ranks[np.argsort(chance, kind="stable")] = np.arange(len(owners))
    return np.argsort((owners * width + (width - 1 - remainders)) * len(owners) + ranks)


def draw_for_clients(source: SamplePool, rows: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Assignment:
    """`counts` of these rows for each client and class, independently for every client.

    counts: int64 [clients, classes]. A client's images all differ, unless it wants more of a class than there are: then
    they are drawn with replacement. A class without images must not be wanted.
    """
    clients, labels = np.nonzero(counts)
    each, sizes = counts[clients, labels], source.class_sizes(rows)
    positions = draw_distinct(sizes[labels], each, rng)
    first = np.cumsum(sizes) - sizes
    ordered = rows[np.argsort(source.labels[rows], kind="stable")]
    return Assignment(ordered[np.repeat(first[labels], each) + positions], np.repeat(clients, each))


def draw_distinct(sizes: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each group, `counts` different numbers from 0 to `sizes` - 1, group after group; int64 [sum(counts)].

    A group that wants more than there are draws its numbers with replacement.
    """
    groups = np.repeat(np.arange(len(counts)), counts)
    found = rng.integers(0, sizes[groups])
    ends = np.cumsum(counts)
    for group in np.flatnonzero((counts * DENSE > sizes) & (counts <= sizes)):
        found[ends[group] - counts[group] : ends[group]] = rng.permutation(sizes[group])[: counts[group]]
    loose = np.flatnonzero((counts <= sizes)[groups])
    while len(loose):
        again = loose[repeated_positions(groups[loose], found[loose])]
        found[again] = rng.integers(0, sizes[groups[again]])
        loose = loose[np.isin(groups[loose], groups[again])]
    return found


def repeated_positions(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Positions of elements that repeat an earlier value of their group, ascending."""
    keys = groups * (values.max(initial=0) + 1) + values
    ordered = np.sort(keys)
    twice = ordered[1:][np.diff(ordered) == 0]
    alike = np.flatnonzero(np.isin(keys, twice))  # few: only these need a stable order
    order = alike[np.argsort(keys[alike], kind="stable")]
    return np.sort(order[1:][np.diff(keys[order]) == 0])


def deal_out(rows: np.ndarray, counts: np.ndarray, rng: np.random.Generator, keep: int | None = None) -> Assignment:
    """Shuffles these rows and cuts them into pieces of these sizes; keeps the first `keep` of each piece, or all."""
    owners = np.repeat(np.arange(len(counts)), counts)
    shuffled = rng.permutation(rows)[: len(owners)]
    dealt = Assignment(shuffled, owners)
    return dealt if keep is None else dealt.chosen(positions_in_runs(owners) < keep)


def deal_again(rows: np.ndarray, owners: np.ndarray, each: int, rng: np.random.Generator) -> Assignment:
    """`each` of these rows for every owner: shuffled, dealt, and dealt again from the start when used up.

    An owner's images differ unless it gets more than there are; each image is dealt equally often, or once more.
    """
    different_ones, times = np.unique(owners, return_counts=True)
    order = rng.permutation(len(times))
    owners = np.repeat(different_ones[order], times[order] * each)
    return Assignment(np.resize(rng.permutation(rows), len(owners)), owners)


def even_sizes(total: int, count: int) -> np.ndarray:
    """Splits `total` into `count` numbers that differ by at most one, larger ones first; int64 [count]."""
    return total // count + (np.arange(count) < total % count)


def round_to_total(shares: np.ndarray, total: int) -> np.ndarray:
    """Integers [n, k] whose rows sum to `total`, as `shares` do: rounded down, the largest fractions of a row up."""
    whole = np.floor(shares).astype(np.int64)
    rank = np.argsort(np.argsort(whole - shares, axis=1, kind="stable"), axis=1)
    return whole + (rank < total - whole.sum(axis=1, keepdims=True))


def join_assignments(pieces: list[Assignment]) -> Assignment:
    return Assignment(*(np.concatenate(arrays) for arrays in zip(*pieces, strict=True)))


def rows_by_client(holdings: Assignment, clients: int, sort: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all clients, client after client, ascending or in order; and their number per client."""
    width = holdings.rows.max(initial=0) + 1
    if sort:
        ordered = np.sort(holdings.owners * width + holdings.rows) % width
    else:
        ordered = holdings.rows[np.argsort(holdings.owners, kind="stable")]
    return ordered, np.bincount(holdings.owners, minlength=clients)


def check_enough(
    images: int, options: PartitionConfig, part: str, key: str, each: int = 1, clients: int = 0, where: str = ""
) -> None:
    """Raises ConfigError if there are too few images to give each client `each` disjoint ones, as set by `key`.

    clients: their number, if not all.
    """
    clients = clients or options.clients
    if images < clients * each:
        lower = f"partition.clients or partition.{key}" if each > 1 else "partition.clients"
        raise_total = ", or raise partition.total" if options.total is not None else ""
        raise ConfigError(
            f"partition {options.name}: {where}{plural(clients, 'client')} with at least "
            f"{plural(each, f'{part} sample')} each: {clients * each} in all, there are {images}; lower "
            f"{lower}{raise_total}"
        )


def shared_image_warnings(hands: Assignment, part: str, image: np.ndarray) -> Iterator[str]:
    """One sentence if clients hold the same image. image: int64 [rows], its number for every row."""
    clients = int(hands.owners.max(initial=0)) + 1
    held = np.unique(image[hands.rows] * clients + hands.owners) // clients
    holders = np.bincount(held)
    if holders.max(initial=0) > 1:
        yield (
            f"partition.reuse: {(holders > 1).sum()} of {(holders > 0).sum()} {part} samples are held by several "
            f"clients (up to {holders.max()})"
        )


def repeated_image_warnings(
    hands: Assignment, part: str, why: str = ", because their share of a class is larger than the class"
) -> Iterator[str]:
    """One sentence if a client holds an image more than once."""
    twice = np.unique(hands.owners[repeated_positions(hands.owners, hands.rows)])
    if len(twice):
        holders = f"{len(twice)} clients (the first: {twice[0]}) hold" if len(twice) > 1 else f"client {twice[0]} holds"
        yield f"{holders} some {part} samples more than once{why}"
