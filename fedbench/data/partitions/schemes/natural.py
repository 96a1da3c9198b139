"""The clients in the data: one per domain, such as the writer of a text or the hospital of a scan."""

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fedbench.config import PartitionConfig
from fedbench.config.section import PositiveInt
from fedbench.data.partitions.assignment import Assignment, Deal
from fedbench.data.partitions.classes import check_domains
from fedbench.data.partitions.pool import SamplePool, draw_total, groups_of, merges_parts, places_in_order, split_hands
from fedbench.data.partitions.scheme import Scheme
from fedbench.errors import ConfigError


class Options(PartitionConfig):
    min_samples: PositiveInt = Field(
        2, description="minimum number of samples of a client, train and test; smaller clients are left out (natural)"
    )
    client_share: float | None = Field(
        None, gt=0, le=1, description="share of the clients of the data that take part, drawn; none: all (natural)"
    )


def deal(source: SamplePool, options: Options, rng: np.random.Generator) -> Deal:
    """Every client gets the training and test samples of its domain; clients are in the order of their domains.

    Clients with fewer than `min_samples`, or without training or test samples, are left out. `client_share` of the
    others, or `partition.clients`, are drawn. If parts are merged, test_share of each client's samples are held out.
    """
    merged, every = merges_parts(source, options), source
    source = draw_total(source, options, rng)
    train, test = (Assignment(rows, source.domains[rows]) for rows in (source.train, source.test))
    if merged:
        train, test = split_hands(train, source.labels[train.rows], source, options, rng)
    large = large_enough(source, options)
    check_clients_exist(large, every, options)
    domains = np.sort(rng.permutation(large)[: options.clients]) if options.clients < len(large) else large
    number = np.full(len(source.domain_names), -1)
    number[domains] = np.arange(len(domains))
    train, test = (Assignment(part.rows, number[part.owners]) for part in (train, test))
    return train.chosen(train.owners >= 0), test.chosen(test.owners >= 0)


def check_clients_exist(large: np.ndarray, every: SamplePool, options: Options) -> None:
    """Raises ConfigError if `partition.clients` is more than there are, or than the share takes.

    large: the domains that can be clients; every: all samples, of which `partition.total` may have kept fewer.
    """
    most = count_to_draw(large, options)
    if most < options.clients <= len(large):
        raise ConfigError(
            f"partition.clients = {options.clients}: partition.client_share = {options.client_share} takes {most} of "
            f"{len(large)} clients; set one of the two"
        )
    if options.clients > len(large):
        few = (
            f"{len(large)} of {len(every.domain_names)} clients of the data have {options.min_samples} samples and a "
            "training and a test sample"
        )
        if options.total and options.clients <= len(large_enough(every, options)):
            raise ConfigError(
                f"partition.total = {options.total}: {few}, but partition.clients = {options.clients}; raise it, or "
                f"set partition.clients to at most {len(large)}"
            )
        raise ConfigError(f"partition.clients = {options.clients}: {few}; set it to at most that many")


def large_enough(source: SamplePool, options: Options) -> np.ndarray:
    """The domains that can be clients, ascending. Raises ConfigError if there are none."""
    check_domains(source, options)
    count = len(source.domain_names)
    train, test = (np.bincount(source.domains[rows], minlength=count) for rows in (source.train, source.test))
    fit = train - np.bincount(source.domains[source.val_rows], minlength=count)
    if merges_parts(source, options):
        whole = train + test
        pooled = options.test == "pooled"
        test = (whole * options.test_share).astype(np.int64) if pooled else separable(source, options) - 1
        train = fit = whole - test
    large = np.flatnonzero((fit > 0) & (test > 0) & (train + test >= options.min_samples))
    if not len(large) and (test < 1).all() and merges_parts(source, options) and options.test != "pooled":
        column = options.order_by if options.test == "last" else options.test_by
        if column and (train > 1).any():
            raise ConfigError(
                f"partition natural: each of the {count} clients of the data has one {column}, and a client needs one "
                "to train and one to test; take another column"
            )
    if not len(large):
        remedies = ["raise partition.test_share" if merges_parts(source, options) else "set partition.test pooled"]
        remedies += ["raise partition.total"] if options.total else []
        if not options.total and (train + test).max() < 2:
            raise ConfigError(
                f"partition natural: each of the {count} clients of the data has one sample, and a client needs one to "
                "train and one to test; take another column as the user, or partition iid"
            )
        raise ConfigError(
            f"partition natural: none of the {count} clients of the data has {options.min_samples} samples and a "
            f"training and a test sample; {', '.join(remedies)} or lower partition.min_samples"
        )
    return large


def separable(source: SamplePool, options: Options) -> np.ndarray:
    """How many pieces of every client can be on different sides: samples, groups or places; int64 [domains]."""
    rows, count = np.concatenate([source.train, source.test]), len(source.labels)
    together = places_in_order(source) if options.test == "last" else groups_of(source, options)
    pieces = rows if together is None else np.unique(together[rows], return_inverse=True)[1]
    return np.bincount(np.unique(source.domains[rows] * count + pieces) // count, minlength=len(source.domain_names))


def count_to_draw(large: np.ndarray, options: Options) -> int:
    """How many of these clients take part unless `partition.clients` is set."""
    return max(1, round(options.client_share * len(large))) if options.client_share else len(large)


def count(source: SamplePool, options: Options) -> int:
    """The number of clients in the data that take part."""
    return count_to_draw(large_enough(source, options), options)


def has_own_parts(source: SamplePool) -> bool:
    """Whether some client of the data has both training and test samples."""
    shared = np.intersect1d(source.domains[source.train], source.domains[source.test])
    return not source.one_part and len(shared) > 0


def remarks(source: SamplePool, options: Options) -> Iterator[str]:
    """Says how many clients of the data do not take part."""
    every, large = len(source.domain_names), len(large_enough(source, options))
    if options.test == "pooled" and not source.one_part and not has_own_parts(source):
        yield "no client of the data has samples in both parts: partition.test_share of each client's are held out"
    if large < every:
        yield (
            f"{every - large} of {every} clients of the data are left out: fewer than {options.min_samples} samples "
            "(partition.min_samples), or no training or no test sample"
        )
    if options.clients < large:
        yield f"{options.clients} of {large} clients of the data were drawn"


SCHEME = Scheme(
    deal,
    Options=Options,
    classless=True,
    count=count,
    own_parts=has_own_parts,
    remarks=remarks,
    headline=("min_samples",),
    splits_clients=True,
)
