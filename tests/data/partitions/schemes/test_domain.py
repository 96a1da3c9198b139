"""As many clients in every domain."""

import numpy as np

from tests.data.partitions.dealing import deal
from tests.data.toys import FOUR


def test_domains_are_shared_evenly_and_sizes_kept():
    clients = deal(FOUR, name="domain", clients=8, train_size=100, test_size=50, val=0).clients
    assert [int(FOUR.domains[c.train[0]]) for c in clients] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {(len(c.train), len(c.test)) for c in clients} == {(100, 50)}
    assert len(np.unique(np.concatenate([c.train for c in clients]))) == 800
