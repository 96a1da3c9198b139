"""Equally many clients in every domain, each with a random piece of it."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.config.words import plural
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.classes import clients_each, deal_in_domains, even_deal
from fedbench.data.partitions.pool import SamplePool, parts_to_deal
from fedbench.data.partitions.scheme import Scheme
from fedbench.errors import ConfigError


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Every domain has equally many clients, each with a random piece of it; clients are numbered domain by domain.

    The feature shift of FedMosaic with one client per domain.
    """
    source, each = parts_to_deal(source, options, rng), clients_each(source, options)
    for rows, part in ((source.train, "training"), (source.test, "test")):
        few = np.flatnonzero(np.bincount(source.domains[rows], minlength=len(source.domain_names)) < each)
        if len(few):
            raise ConfigError(
                f"partition domain: domain {source.domain_names[few[0]]} has fewer {part} samples than its "
                f"{plural(each, 'client')}, and so have {len(few) - 1} others; partition natural leaves clients out "
                "that have no samples"
            )
    return deal_in_domains(even_deal, source, options, each, rng)


SCHEME = Scheme(deal, reads=("train_size", "test_size"), classless=True, headline=("train_size",))
