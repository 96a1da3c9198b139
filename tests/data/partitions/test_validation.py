"""A share of every client's training part is held out."""

import numpy as np
import pytest

from tests.data.partitions.dealing import deal
from tests.data.toys import EVEN, made


def test_validation_is_a_stratified_share_of_the_training_part():
    without, held = (deal(name="iid", clients=5, val=val).clients for val in (0, 0.1))
    for client, whole in zip(held, without, strict=True):
        assert len(client.val) == 20
        assert sorted([*client.train, *client.val]) == whole.train.tolist()
        assert client.test.tolist() == whole.test.tolist()
        counts, val = (np.bincount(EVEN.labels[rows], minlength=10) for rows in (whole.train, client.val))
        assert np.abs(val - counts * 0.1).max() < 1


@pytest.mark.parametrize(("images", "val", "expected"), [(2, 0.1, 1), (1, 0.1, 0), (5, 0.9, 4), (4, 0.4, 2), (3, 0, 0)])
def test_size_of_the_validation_part(images, val, expected):
    dataset = made([images], [1])
    assert len(deal(dataset, name="iid", clients=1, val=val).clients[0].val) == expected
