"""Schemes for data sets whose images come from several domains: photographs and sketches, or kinds of corruption."""

from dataclasses import replace

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.classes import even_deal, shard_deal, shards
from fedbench.data.partitions.holdings import Deal, Holdings, Source, parts, together
from fedbench.errors import ConfigError


def domain(source: Source, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Every domain has equally many clients, each with a random piece of it; clients count through domain by domain.

    The feature shift of FedMosaic with one client per domain.
    """
    source, each = parts(source, options, rng), clients_each(source, options)
    deals = [
        even_deal(source.in_domain(d), options, each, rng, f"in domain {name}, ")
        for d, name in enumerate(source.domain_names)
    ]
    return side_by_side(deals, each)


def domain_shards(source: Source, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Every domain has equally many clients, each with `classes` classes of it, as in shards.

    The hybrid of FedMosaic: 5 clients per domain with 2 of 10 classes, dealt so that each class is held
    (`deal` = even) or drawn by each client (random).
    """
    source, each = parts(source, options, rng), clients_each(source, options)
    deals = [
        shard_deal(source.in_domain(d), options, each, rng, f"in domain {name}, ")
        for d, name in enumerate(source.domain_names)
    ]
    return side_by_side(deals, each)


def clients_each(source: Source, options: PartitionConfig) -> int:
    """Clients per domain."""
    names = source.domain_names
    check_domains(source, options)
    if options.clients % len(names):
        raise ConfigError(
            f"partition {options.name}: partition.clients = {options.clients} is not a multiple of the {len(names)} "
            f"domains ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''})"
        )
    return options.clients // len(names)


def check_domains(source: Source, options: PartitionConfig) -> None:
    if not source.domain_names:
        raise ConfigError(f"partition {options.name}: the data set has 0 domains; choose one that has some, or iid")


def side_by_side(deals: list[Deal], each: int) -> Deal:
    """Deals to so many clients each, as one; the second deal's clients follow the first's."""
    train, test = (
        together([Holdings(hands.rows, hands.owners + i * each) for i, hands in enumerate(part)])
        for part in zip(*deals, strict=True)
    )
    return train, test


def corruption(source: Source, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """The classes of shards, and every client sees all of its images under one kind of corruption.

    The protocol of CO-PFL on CIFAR-10-C, whose domains hold the same photographs under different corruptions: a
    photograph is dealt once, so no client is tested on one that another trains on. Clients beyond the number of kinds
    share them evenly.
    """
    check_domains(source, options)
    photographs, copies = originals(source)
    kinds = len(copies)
    of_client = np.concatenate([rng.permutation(kinds) for _ in range(-(-options.clients // kinds))])
    train, test = (
        Holdings(copies[of_client[hands.owners], hands.rows], hands.owners)
        for hands in shards(photographs, options, rng)
    )
    return train, test


def originals(source: Source) -> tuple[Source, np.ndarray]:
    """The photographs behind the domains as a source of their own, and the row of each, int64 [domains, photographs].

    The i-th row of a domain is the i-th photograph. One that is missing under some corruption is not dealt. Raises
    ConfigError where the domains do not hold the same photographs.
    """
    kinds = len(source.domain_names)
    sizes = np.bincount(source.domains, minlength=kinds)
    order = np.argsort(source.domains, kind="stable")
    copies = order.reshape(kinds, -1) if (sizes == sizes[0]).all() else order[:0].reshape(kinds, 0)
    labels = source.labels[copies]
    if not copies.size or (labels != labels[0]).any():
        raise ConfigError(
            f"partition corruption: the {kinds} domains do not hold the same images in the same order "
            f"({sizes.min()} to {sizes.max()} images); take cifar10c, or partition domain"
        )
    train, test = (np.flatnonzero(np.isin(copies, rows).all(axis=0)) for rows in (source.train, source.test))
    alike = replace(source, labels=labels[0], domains=np.zeros(len(labels[0]), np.int64), train=train, test=test)
    return alike, copies
