"""Equal random shares of all images."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Deal
from fedbench.data.partitions.classes import even_deal
from fedbench.data.partitions.pool import SamplePool, parts_to_deal
from fedbench.data.partitions.scheme import Scheme


def deal(source: SamplePool, options: PartitionConfig, rng: np.random.Generator) -> Deal:
    """Both parts are shuffled and cut into equal pieces (sizes differ by at most one); every image is dealt once.

    `train_size` and `test_size` limit the images kept of each piece.
    """
    source = parts_to_deal(source, options, rng)
    return even_deal(source, options, options.clients, rng)


SCHEME = Scheme(deal, reads=("train_size", "test_size"), classless=True)
