"""Some classes for every client, so many images of each."""

import numpy as np

from tests.data.partitions.dealing import deal, refused
from tests.data.toys import made


def test_mini_imagenet_of_co_pfl_needs_images_twice():
    """20 clients, 10 of 100 classes: two clients a class, of which it has 100 test images, and each is to have 100."""
    dataset = made([60] * 100, [100] * 100)
    asked = {"name": "shards", "clients": 20, "classes": 10, "images": 50, "test_images": 100}
    line = "class 0 has 60 training samples, and 100 are needed, 50 for each of 2 clients; set partition.reuse true"
    assert line in refused(dataset, **asked)
    dealt = deal(dataset, reuse=True, val=0, **asked)
    assert {(len(c.train), len(c.test)) for c in dealt.clients} == {(500, 1000)}
    assert all(len(np.unique(c.train)) == 500 for c in dealt.clients)
    assert dealt.warnings == (
        "partition.reuse: 4000 of 6000 training samples are held by several clients (up to 2)",
        "partition.reuse: 10000 of 10000 test samples are held by several clients (up to 2)",
    )


def test_a_class_dealt_twice_to_a_client_has_different_images_in_both_pieces():
    dealt = deal(made([30] * 10, [20] * 10), reuse=True, val=0, deal="shuffled", name="shards", clients=50, images=12)
    assert {len(np.unique(client.train)) for client in dealt.clients} == {24}


def test_where_there_is_enough_for_all_nothing_is_reused():
    asked = {"name": "shards", "images": 50, "test_images": 10}
    assert deal(reuse=True, **asked).fingerprint() == deal(**asked).fingerprint()
    assert deal(reuse=True, **asked).warnings == ()
