"""A few whole classes per client, split evenly among their holders."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.classes import SHARD_KEYS, shard_deal, shard_size
from fedbench.data.partitions.pool import SamplePool, parts_to_deal
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """`classes` classes per client; a class is split evenly among its holders, who keep `images` of their piece.

    Train and test part use the same classes; no image is held twice, unless `reuse` lets clients share the images of a
    class that has too few. The protocol of LotteryFL, FedSelect and CO-PFL; `deal` sets how classes are chosen:
    FedSelect's code uses `shuffled`.
    """
    return shard_deal(parts_to_deal(source, options, rng), options, options.clients, rng)


SCHEME = Scheme(deal, reads=SHARD_KEYS, size=shard_size, headline=("classes", "images"))
