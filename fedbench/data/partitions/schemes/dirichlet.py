"""Every class is split among all clients in Dirichlet proportions."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.proportions import DIRICHLET_KEYS, cut_by_shares
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Splits each class among all clients in proportions drawn from Dirichlet(alpha); every image is dealt once.

    The protocol of FedOBP and FL-bench: train and test part are pooled, and int(test_share * n) random images of a
    client's n images are its test images. Redrawn, at most `max_draws` times, until all have `min_images`.
    """
    return cut_by_shares(source, options, rng, balanced=False)


SCHEME = Scheme(deal, reads=DIRICHLET_KEYS, test="pooled", drawn=True, headline=("alpha",), splits_clients=True)
