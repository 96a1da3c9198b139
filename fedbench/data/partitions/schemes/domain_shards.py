"""Equally many clients in every domain, each with a few classes of it."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal, SamplePool, parts_to_deal
from fedbench.data.partitions.classes import SHARD_KEYS, shard_deal
from fedbench.data.partitions.domains import clients_each, join_deals
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Every domain has equally many clients, each with `classes` classes of it, as in shards.

    The hybrid setting of FedMosaic: 5 clients per domain with 2 of 10 classes, assigned so that each class is held
    (`deal` = even) or drawn by each client (random).
    """
    source, each = parts_to_deal(source, options, rng), clients_each(source, options)
    deals = [
        shard_deal(source.in_domain(d), options, each, rng, f"in domain {name}, ")
        for d, name in enumerate(source.domain_names)
    ]
    return join_deals(deals, each)


SCHEME = Scheme(deal, reads=SHARD_KEYS, headline=("classes", "images"))
