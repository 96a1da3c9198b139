"""A few whole classes per client, cut evenly among their holders."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal, SamplePool, parts_to_deal
from fedbench.data.partitions.classes import SHARD_KEYS, shard_deal
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """`classes` classes per client; a class is cut evenly among its holders, each of whom keeps `images` of its piece.

    Train and test part go by the same classes; no image is held twice, unless `reuse` lets clients share the images of
    a class that has too few for all. The protocol of LotteryFL, FedSelect and CO-PFL; `deal` says how the classes are
    chosen: the code of FedSelect has `shuffled`.
    """
    return shard_deal(parts_to_deal(source, options, rng), options, options.clients, rng)


SCHEME = Scheme(deal, reads=SHARD_KEYS, headline=("classes", "images"))
