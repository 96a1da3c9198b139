"""Equally many clients in every domain, each with a few classes of it."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.classes import SHARD_KEYS, clients_each, deal_in_domains, shard_deal, shard_size
from fedbench.data.partitions.pool import SamplePool, parts_to_deal
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Every domain has equally many clients, each with `classes` classes of it, as in shards.

    The hybrid setting of FedMosaic: 5 clients per domain with 2 of 10 classes, assigned so that each class is held
    (`deal` = even) or drawn by each client (random).
    """
    source, each = parts_to_deal(source, options, rng), clients_each(source, options)
    return deal_in_domains(shard_deal, source, options, each, rng)


SCHEME = Scheme(deal, reads=SHARD_KEYS, size=shard_size, headline=("classes", "images"))
