"""Who holds which rows: sent, told apart, counted."""

import pickle

import numpy as np
import pytest

from fedbench.data import Partition
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
    swapped = Partition([second, first])
    assert one.fingerprint() != swapped.fingerprint() != Partition([first]).fingerprint()


def test_class_counts_are_those_of_the_training_images():
    dealt = deal(name="shards", images=50, val=0.1)
    counts = dealt.class_counts(EVEN.labels, 10)
    assert counts.shape == (10, 10)
    assert counts.sum(axis=1).tolist() == [90] * 10
