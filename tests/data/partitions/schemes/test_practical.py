"""A Dirichlet draw in which nobody goes far beyond an even share."""

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import random_stream
from fedbench.data.partitions.proportions import draw_ends, piece_sizes
from tests.data.partitions.dealing import deal
from tests.data.toys import made


def test_practical_clients_that_have_their_share_get_no_more():
    """Held before the last class it was dealt, no client had its even share; so no two classes go beyond it."""
    options = PartitionConfig(name="practical", clients=12, alpha=0.1)
    sizes = np.array([100, 90, 80, 70, 60, 200])
    for seed in range(20):
        counts = piece_sizes(
            draw_ends(sizes, options, random_stream(seed, "deal"), balanced=True), sizes
        )  # [classes, clients]
        assert counts.sum(axis=1).tolist() == sizes.tolist()
        before = np.cumsum(counts, axis=0) - counts
        assert (before[counts > 0] < sizes.sum() / 12).all()


def test_practical_clients_differ_less_in_size():
    def largest(name: str) -> int:
        return max(len(c.train) for c in deal(name=name, alpha=0.1, min_images=4, val=0).clients)

    assert largest("practical") < largest("dirichlet")


def test_practical_with_classes_that_have_no_images_left_to_give():
    lacking = made([50, 0, 0], [10, 0, 0])
    assert len(deal(lacking, name="practical", clients=2, min_images=2).clients) == 2
