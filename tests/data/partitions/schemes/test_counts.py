"""Images as asked for."""

import numpy as np

from tests.data.partitions.dealing import deal, refused
from tests.data.toys import EVEN

COUNTS = [[40, 0, 10, 0, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0, 0, 0, 0], [40, 0, 10, 0, 0, 0, 0, 0, 0, 0]]


def test_everybody_gets_what_is_written():
    clients = deal(name="counts", clients=3, counts=COUNTS, test_size=10, val=0).clients
    found = [np.bincount(EVEN.labels[client.train], minlength=10).tolist() for client in clients]
    assert found == COUNTS
    tests = [np.bincount(EVEN.labels[client.test], minlength=10).tolist() for client in clients]
    assert tests[0] == [8, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert sorted(tests[1]) == [0] * 7 + [3, 3, 4], "10 test samples of three equal classes"
    assert len(np.unique(clients[0].train)) == 50
    assert clients[0].train.tolist() != clients[2].train.tolist(), "independent draws"


def test_what_cannot_be_dealt_is_told():
    assert "2 lists for partition.clients = 3; give one each" in refused(name="counts", clients=3, counts=COUNTS[:2])
    assert "client 0 has 2 numbers with the sum 3" in refused(name="counts", clients=1, counts=[[1, 2]])
    assert "sum 0" in refused(name="counts", clients=1, counts=[[0] * 10])
    few = refused(name="counts", clients=1, counts=[[101] + [0] * 9], test_size=10)
    assert "class 0 has 100 training samples, a client needs 101 of it" in few
    assert "20 test samples, a client needs 50" in refused(name="counts", clients=1, counts=[[5, 5] + [0] * 8])
    assert "partition.counts" in refused(name="counts", clients=1, counts=[[-1] + [1] * 9])
