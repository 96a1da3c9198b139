"""Every class cut by a Dirichlet draw."""

import numpy as np

from tests.data.partitions.dealing import deal
from tests.data.toys import EVEN, made


def test_dirichlet_of_fedobp_pools_the_parts_and_holds_out_a_quarter_of_each_client():
    dealt = deal(name="dirichlet", clients=8, val=0)
    for client in dealt.clients:
        images = len(client.train) + len(client.test)
        assert images >= 10
        assert len(client.test) == images // 4
    assert min(row for c in dealt.clients for row in c.test) < EVEN.train_rows, "test samples from the train part too"


def test_dirichlet_can_keep_the_parts_and_test_follows_train():
    dataset = made([600] * 10, [600] * 10)
    clients = deal(dataset, name="dirichlet", clients=8, val=0, test="part").clients
    assert sorted(np.concatenate([c.train for c in clients])) == list(range(6000))
    assert sorted(np.concatenate([c.test for c in clients])) == list(range(6000, 12000))
    for client in clients:
        train, test = (np.bincount(dataset.labels[rows], minlength=10) for rows in (client.train, client.test))
        assert train.tolist() == test.tolist(), "equal parts are cut at equal places"
        assert train.sum() >= 10


def test_dirichlet_is_skewed_by_alpha():
    def largest_share(alpha: float) -> float:
        counts = deal(name="dirichlet", alpha=alpha, min_images=1, val=0).class_counts(EVEN.labels, 10)
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    assert largest_share(100.0) < 0.2 < largest_share(0.3)
