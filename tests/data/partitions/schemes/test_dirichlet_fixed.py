"""Clients of one size, each with proportions of its own."""

import numpy as np
import pytest

from fedbench.data.partitions.schemes.dirichlet_fixed import fixed_counts
from tests.data.partitions.dealing import deal
from tests.data.toys import EVEN, made


def test_dirichlet_fixed_of_fedcac():
    dataset = made([600] * 10, [600] * 10)
    clients = deal(dataset, name="dirichlet-fixed", clients=40, train_size=100, test_size=100, val=0).clients
    for client in clients:
        train, test = (np.bincount(dataset.labels[rows], minlength=10) for rows in (client.train, client.test))
        assert train.tolist() == test.tolist(), "one draw of proportions for both parts"
        assert len(np.unique(client.train)) == len(np.unique(client.test)) == 100


def test_dirichlet_fixed_counts_are_rounded_class_by_class_and_late_classes_may_starve():
    for shares, size, expected in (
        ([0.25, 0.25, 0.5], 10, [3, 3, 4]),
        ([0.55, 0.449, 0.001], 10, [6, 4, 0]),
        ([0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.1], 10, [2, 2, 2, 2, 2, 0, 0]),
    ):
        assert fixed_counts(np.array([shares]), size).tolist() == [expected]


def test_dirichlet_fixed_says_when_rounding_decides_the_proportions():
    (line,) = deal(name="dirichlet-fixed", clients=3, train_size=100, test_size=20).warnings
    assert line.startswith(
        "partition.test_size = 20: proportions of 10 classes are rounded one by one, and the last cla"
    )
    assert not deal(name="dirichlet-fixed", clients=3, train_size=100, test_size=30).warnings


def test_dirichlet_fixed_largest_share_is_as_simulated_for_the_paper():
    """Alpha per class: the largest class holds 66.4 % (alpha 0.1), 37.9 % (0.5), 29.2 % (1.0) of 10 classes."""
    for alpha, share in ((0.1, 0.664), (0.5, 0.379), (1.0, 0.292)):
        options = {"name": "dirichlet-fixed", "clients": 1000, "alpha": alpha, "train_size": 100, "test_size": 1}
        counts = deal(val=0, **options).class_counts(EVEN.labels, 10)
        assert (counts.max(axis=1) / 100).mean() == pytest.approx(share, abs=0.03)


def test_dirichlet_fixed_says_when_a_client_holds_images_twice():
    dealt = deal(name="dirichlet-fixed", clients=3, train_size=900, alpha=0.05, val=0.2)
    assert "hold some training samples more than once" in dealt.warnings[0]
    for client in dealt.clients:
        assert len(client.train) + len(client.val) == 900
        assert not np.intersect1d(client.train, client.val).size, "all copies are on one side"
