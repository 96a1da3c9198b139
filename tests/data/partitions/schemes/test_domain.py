"""As many clients in every domain."""

import numpy as np

from tests.data.partitions.dealing import deal
from tests.data.toys import FOUR


def test_a_domain_per_client():
    dealt = deal(FOUR, name="domain", clients=4, val=0)
    for number, client in enumerate(dealt.clients):
        assert set(FOUR.domains[client.train]) == set(FOUR.domains[client.test]) == {number}
        assert (len(client.train), len(client.test)) == (300, 120)


def test_domains_are_shared_evenly_and_sizes_kept():
    clients = deal(FOUR, name="domain", clients=8, train_size=100, test_size=50, val=0).clients
    assert [int(FOUR.domains[c.train[0]]) for c in clients] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {(len(c.train), len(c.test)) for c in clients} == {(100, 50)}
    assert len(np.unique(np.concatenate([c.train for c in clients]))) == 800
