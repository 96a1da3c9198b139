"""The samples to distribute, and how their parts are merged and split again before or after they are dealt."""

from dataclasses import dataclass, field, replace

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.assignment import (
    Assignment,
    Deal,
    apportion,
    distinct_values,
    draw_distinct,
    random_ranks,
)
from fedbench.data.partitions.held_out import draw_by_class, draw_groups, last_of_each
from fedbench.data.reading.beside import DOMAIN
from fedbench.errors import ConfigError

MERGING = ("stratified", "last", "pooled")
"""The values of `partition.test` under which all parts are one, of which test samples are held out."""


@dataclass(frozen=True, eq=False)
class SamplePool:
    """The samples to distribute.

    labels, domains: int64 [rows] of the whole data set; without classes all labels are 0, without domains all domains
    are 0, without a name. numbers: the data set's number of each class that occurs, int64 [classes]. train, test: the
    rows of the two parts that clients may get, int64, ascending. val_rows: the rows of the data set's own validation
    part, if any, which are training rows too. one_part: the data set has no other part. known: it is one of fedbench's
    own, by name; official: as its makers publish it. groups, order: int64 [rows], the columns that `partition.test_by`
    and `partition.order_by` name, if any. extent: how far a sample reaches, in units of the order. reserved: rows that
    were withheld from clients.
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
    official: bool
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
            dataset.official,
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
        train, test = (part[~np.isin(part, rows)] for part in (self.train, self.test))
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
        held = random_ranks(owners, rng) < (np.bincount(owners) * options.test_share).astype(np.int64)[owners]
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
