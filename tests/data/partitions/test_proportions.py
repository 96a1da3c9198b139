"""Shares of classes become counts of images."""

import numpy as np
import pytest

from fedbench.data.partitions.proportions import piece_sizes
from tests.data.partitions.dealing import deal, refused
from tests.data.toys import EVEN, made


def test_a_class_is_cut_where_the_cumulated_shares_are_rounded_down():
    ends = np.array([[0.25, 0.26, 1.0], [0.1, 0.55, 1.0]])
    assert piece_sizes(ends, np.array([10, 100])).tolist() == [[2, 0, 8], [10, 45, 45]]


@pytest.mark.parametrize("name", ["dirichlet", "practical"])
def test_drawn_test_images_follow_the_clients_classes(name):
    """Where fewer images are dealt than there are; test images in the client's own proportions, of one size."""
    dealt = deal(name=name, clients=5, val=0, test="drawn", test_size=20, total=400, alpha=0.3)
    assert sum(len(c.train) for c in dealt.clients) == 400
    for client in dealt.clients:
        train, test = (np.bincount(EVEN.labels[rows], minlength=10) for rows in (client.train, client.test))
        assert test.sum() == 20
        assert (client.test >= EVEN.train_rows).all()
        assert np.abs(test - 20 * train / train.sum()).max() < 1


def test_drawn_test_images_need_every_class_that_is_held():
    lacking = made([50, 50], [50, 0])
    assert "class 1 has no test image" in refused(lacking, name="practical", clients=2, test="drawn")
