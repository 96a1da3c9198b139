"""Equal random pieces."""

import numpy as np

from tests.data.partitions.dealing import deal
from tests.data.toys import EVEN


def test_iid_deals_everything_in_equal_pieces():
    clients = deal(name="iid", clients=7, val=0).clients
    assert sorted(np.concatenate([c.train for c in clients])) == list(range(1000))
    assert sorted(np.concatenate([c.test for c in clients])) == list(range(1000, 1200))
    assert {len(c.train) for c in clients} == {142, 143}


def test_a_total_is_in_proportion_and_leaves_the_test_part():
    few = deal(name="iid", clients=5, total=205, val=0)
    assert set(few.class_counts(EVEN.labels, 10).sum(axis=0).tolist()) == {20, 21}
    assert sum(len(c.test) for c in few.clients) == 200, "the test part is not asked for"
