"""Dirichlet proportions with a limit near an even share."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.proportions import DIRICHLET_KEYS, cut_by_shares
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """As dirichlet, but a client that has an even share of all images gets none of the following classes.

    The "practical" setting of PFLlib and FedMosaic: client sizes differ less.
    """
    return cut_by_shares(source, options, rng, balanced=True)


SCHEME = Scheme(deal, reads=DIRICHLET_KEYS, test="pooled", drawn=True, headline=("alpha", "total"), splits_clients=True)
