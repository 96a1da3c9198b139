"""Who holds which rows: sent, told apart, counted."""

import pickle

import numpy as np
import pytest

from fedbench.data.partitions import Clients, Partition
from tests.data.partitions.dealing import deal
from tests.data.partitions.fingerprints import FINGERPRINTS, OPTIONS
from tests.data.toys import EVEN, FOUR, corrupted


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_partition_travels_whole(name):
    dealt = deal(FOUR if name != "corruption" else corrupted(), name=name, clients=8, **OPTIONS)
    again = pickle.loads(pickle.dumps(dealt))
    assert again.fingerprint() == dealt.fingerprint()
    assert (again.warnings, again.seed) == (dealt.warnings, dealt.seed)
    assert all(rows.dtype == np.int64 for c in again.clients for rows in (c.train, c.val, c.test))


def test_the_fingerprint_tells_parts_apart():
    one = deal(name="iid", clients=2)
    first, second = one.clients
    swapped, alone = Partition(Clients.of([second, first])), Partition(Clients.of([first]))
    assert one.fingerprint() != swapped.fingerprint() != alone.fingerprint()
    assert Partition(Clients.of([first, second])).fingerprint() == one.fingerprint()


def test_class_counts_are_those_of_the_training_images():
    dealt = deal(name="shards", images=50, val=0.1)
    counts = dealt.class_counts(EVEN.labels, 10)
    assert counts.shape == (10, 10)
    assert counts.sum(axis=1).tolist() == [90] * 10


def test_clients_are_looked_up_like_a_list():
    dealt = deal(name="iid", clients=3)
    assert [len(own.train) for own in dealt.clients] == dealt.sizes("train").tolist()
    assert dealt.clients[-1].test.tolist() == dealt.clients[2].test.tolist()
    assert [own.val.tolist() for own in dealt.clients[1:]] == [dealt.clients[n].val.tolist() for n in (1, 2)]
    with pytest.raises(IndexError):
        dealt.clients[3]
