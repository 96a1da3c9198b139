"""Shards, each client under one kind of corruption."""

import numpy as np

from tests.data.partitions.dealing import classes_of, deal, refused
from tests.data.toys import corrupted


def test_corruption_of_co_pfl():
    """10 clients, 2 of 10 classes, 40 training and 20 test images, each client under one kind of its own."""
    dataset = corrupted(photographs=1000, test=300)
    options = {"name": "corruption", "clients": 10, "images": 20, "test_images": 10, "val": 0}
    clients = deal(dataset, **options).clients
    photograph = np.concatenate([np.tile(np.arange(700), 15), np.tile(np.arange(700, 1000), 15)])
    kinds = [set(dataset.domains[np.concatenate([c.train, c.test])].tolist()) for c in clients]
    assert all(len(kind) == 1 for kind in kinds)
    assert len(set.union(*kinds)) == 10
    for client in clients:
        assert (len(client.train), len(client.test)) == (40, 20)
        assert classes_of(client.train, dataset) == classes_of(client.test, dataset)
        assert len(classes_of(client.train, dataset)) == 2
    photographs = photograph[np.concatenate([rows for c in clients for rows in (c.train, c.test)])]
    assert len(np.unique(photographs)) == len(photographs), "no photograph twice, under whatever corruption"


def test_cifar10c_of_co_pfl_with_fifty_clients_needs_photographs_twice():
    """Ten clients a class, under fifteen kinds; a photograph is in one part only, under whatever corruption."""
    dataset = corrupted(500, test=100)
    asked = {"name": "corruption", "clients": 50, "images": 8, "test_images": 5, "val": 0}
    assert "set partition.reuse true" in refused(dataset, **asked)
    dealt = deal(dataset, reuse=True, **asked)
    photographs = np.concatenate([np.tile(np.arange(400), 15), np.tile(np.arange(400, 500), 15)])
    train, test = (np.concatenate([photographs[getattr(c, p)] for c in dealt.clients]) for p in ("train", "test"))
    assert (len(train), len(test)) == (800, 500)
    assert not np.intersect1d(train, test).size
    assert np.bincount(train).max() == 3
    assert {len(np.unique(c.train)) for c in dealt.clients} == {16}
    assert dealt.warnings[0].endswith("of 400 training samples are held by several clients (up to 3)")
