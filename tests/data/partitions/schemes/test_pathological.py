"""Random classes; clients may share images."""

import numpy as np

from tests.data.partitions.dealing import classes_of, deal
from tests.data.toys import EVEN


def test_pathological_of_fedcac():
    clients = deal(name="pathological", clients=40, train_size=100, test_size=15, val=0).clients
    for client in clients:
        assert sorted(np.bincount(EVEN.labels[client.train]).tolist())[-2:] == [50, 50]
        assert sorted(np.bincount(EVEN.labels[client.test]).tolist())[-2:] == [7, 8]
        assert classes_of(client.train) == classes_of(client.test)
        assert len(np.unique(client.train)) == 100
    assert len({tuple(classes_of(c.train)) for c in clients}) > 10
    everything = np.concatenate([c.train for c in clients])
    assert len(np.unique(everything)) < len(everything), "clients may share samples"
