"""Shards, each client under one type of corruption."""

from dataclasses import replace

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Assignment, Deal
from fedbench.data.partitions.classes import SHARD_KEYS, check_domains, shard_size
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.scheme import Scheme
from fedbench.data.partitions.schemes import shards
from fedbench.errors import ConfigError


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Assigns classes as in shards; all images of a client have one type of corruption.

    The protocol of CO-PFL on CIFAR-10-C, whose domains hold the same photographs under different corruptions. A
    photograph is dealt once, or (`reuse`) in one part only, so no client is tested on one that another trains on. If
    there are more clients than types, they share the types evenly.
    """
    check_domains(source, options)
    photographs, copies = originals(source)
    kinds = len(copies)
    of_client = np.concatenate([rng.permutation(kinds) for _ in range(-(-options.clients // kinds))])
    train, test = (
        Assignment(copies[of_client[hands.owners], hands.rows], hands.owners)
        for hands in shards.deal(photographs, options, rng)
    )
    return train, test


def originals(source: SamplePool) -> tuple[SamplePool, np.ndarray]:
    """The photographs behind the domains as a source of their own, and their rows, int64 [domains, photographs].

    The i-th row of a domain is the i-th photograph. One that is missing under some corruption is not dealt. Raises
    ConfigError if the domains do not hold the same photographs.
    """
    kinds = len(source.domain_names)
    sizes = np.bincount(source.domains, minlength=kinds)
    by_kind = np.argsort(source.domains, kind="stable")
    copies = by_kind.reshape(kinds, -1) if (sizes == sizes[0]).all() else by_kind[:0].reshape(kinds, 0)
    labels = source.labels[copies]
    if not copies.size or (labels != labels[0]).any():
        raise ConfigError(
            f"partition corruption: the {kinds} domains do not hold the same images in the same order "
            f"({sizes.min()} to {sizes.max()} images); take cifar10c, or partition domain"
        )
    train, test = (np.flatnonzero(np.isin(copies, rows).all(axis=0)) for rows in (source.train, source.test))
    alike = replace(source, labels=labels[0], domains=np.zeros(len(labels[0]), np.int64), train=train, test=test)
    reserved = np.flatnonzero(np.isin(copies, source.reserved).any(axis=0))
    groups = of_photographs(source.groups, copies, "test_by")
    order = of_photographs(source.order, copies, "order_by")
    return replace(alike, reserved=reserved, groups=groups, order=order), copies


def of_photographs(values: np.ndarray | None, copies: np.ndarray, key: str) -> np.ndarray | None:
    """A column `[rows]` for each photograph, if the data have it. Raises ConfigError if its copies differ in it.

    key: of the section `partition`, which names the column.
    """
    if values is None:
        return None
    if (values[copies] != values[copies[0]]).any():
        raise ConfigError(
            f"partition corruption: the copies of a photograph under {len(copies)} corruptions differ in the "
            f"column of partition.{key}; take partition domain"
        )
    return values[copies[0]]


def photograph(source: SamplePool) -> np.ndarray:
    """The photograph behind every row, int64 [rows]."""
    copies = originals(source)[1]
    numbers = np.empty(copies.size, np.int64)
    numbers[copies] = np.arange(copies.shape[1])
    return numbers


SCHEME = Scheme(deal, reads=SHARD_KEYS, size=shard_size, image=photograph, headline=("classes", "images"))
