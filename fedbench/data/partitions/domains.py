"""Partitions of data sets with several domains, such as photographs and sketches, or types of corruption."""

from collections.abc import Callable

from numpy.random import Generator

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Assignment, Deal, SamplePool, join_assignments
from fedbench.errors import ConfigError


def clients_each(source: SamplePool, options: PartitionConfig) -> int:
    """Clients per domain."""
    names = source.domain_names
    check_domains(source, options)
    if options.clients % len(names):
        raise ConfigError(
            f"partition {options.name}: partition.clients = {options.clients} is not a multiple of the {len(names)} "
            f"domains ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''})"
        )
    return options.clients // len(names)


def check_domains(source: SamplePool, options: PartitionConfig) -> None:
    if not source.domain_names:
        raise ConfigError(
            f"partition {options.name}: the data set has 0 domains, such as users; bring one with every sample (a "
            "third value of an item, or a column, data.user), or choose partition iid"
        )


def deal_in_domains(
    deal: Callable[..., Deal], source: SamplePool, options: PartitionConfig, each: int, rng: Generator
) -> Deal:
    """Deals every domain by itself to `each` clients; the second domain's clients follow the first's."""
    names = enumerate(source.domain_names)
    deals = [deal(source.in_domain(d), options, each, rng, f"in domain {name}, ") for d, name in names]
    train, test = (
        join_assignments([Assignment(hands.rows, hands.owners + i * each) for i, hands in enumerate(part)])
        for part in zip(*deals, strict=True)
    )
    return train, test
