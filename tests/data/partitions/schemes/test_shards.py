"""Some classes for every client, so many images of each."""

import numpy as np

from tests.data.partitions.dealing import classes_of, deal
from tests.data.toys import EVEN


def test_shards_of_co_pfl():
    """10 clients, 2 of 10 classes, 50 training images of each; test images of the same classes."""
    clients = deal(name="shards", clients=10, classes=2, images=50, val=0).clients
    for client in clients:
        assert np.bincount(EVEN.labels[client.train], minlength=10).tolist().count(50) == 2
        assert np.bincount(EVEN.labels[client.test], minlength=10).tolist().count(10) == 2
        assert classes_of(client.train) == classes_of(client.test)


def test_shards_keep_the_asked_number_of_test_images():
    clients = deal(name="shards", clients=5, test_images=7).clients
    assert {len(c.test) for c in clients} == {14}
