"""Which classes every client holds."""

import numpy as np
import pytest

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import random_stream
from fedbench.data.partitions.classes import deal_classes
from tests.data.partitions.dealing import deal, doubles, refused
from tests.data.toys import EVEN, FOUR, made


def classes_dealt(classes: int, clients: int, each: int, how: str = "even", seed: int = 0) -> np.ndarray:
    return deal_classes(classes, clients, PartitionConfig(classes=each, deal=how), random_stream(seed, "deal"))


def test_shards_give_every_class_equally_often():
    held = classes_dealt(10, 15, 2)
    assert np.bincount(held.ravel()).tolist() == [3] * 10
    assert not doubles(held)


def test_shards_with_every_class_for_everybody():
    assert (np.sort(classes_dealt(6, 40, 6), axis=1) == np.arange(6)).all()


def test_a_shuffled_deck_may_deal_a_class_twice_and_random_classes_are_not_equally_often():
    """FedSelect's code deals a shuffled deck; FedMosaic's hybrid draws two random classes for each client."""
    shuffled, random = classes_dealt(10, 50, 2, "shuffled"), classes_dealt(10, 50, 2, "random")
    assert doubles(shuffled)
    assert np.bincount(shuffled.ravel()).tolist() == [10] * 10
    assert not doubles(random)
    assert len(set(np.bincount(random.ravel(), minlength=10))) > 1


def test_a_class_dealt_twice_is_two_pieces_of_it():
    options = {"name": "shards", "clients": 50, "images": 5, "test_images": 1}
    dealt = deal(val=0, deal="shuffled", **options)
    counts = dealt.class_counts(EVEN.labels, 10)
    assert set(counts.ravel().tolist()) == {0, 5, 10}
    assert {len(client.train) for client in dealt.clients} == {10}


def test_a_class_without_images():
    lacking = made([10, 0, 10], [5, 5, 5])
    assert "class 1 has no training image" in refused(lacking, name="dirichlet-fixed", train_size=5, test_size=5)
    assert "class 1 has 0 training samples" in refused(lacking, name="shards", clients=3)
    assert "class 1 would give 1 of its 0 training samples" in refused(lacking, public=3)
    assert len(deal(lacking, name="dirichlet", clients=2, min_images=1).clients) == 2


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (
            {"name": "domain", "clients": 6},
            "partition.clients = 6 is not a multiple of the 4 domains (art, cartoon, photo, sketch)",
        ),
        (
            {"name": "domain", "clients": 4, "train_size": 301},
            "in domain art, 1 client with at least 301 training samples each: 301 in all, there are 300",
        ),
        (
            {"name": "domain-shards", "clients": 8, "test_images": 13},
            "has 12 test samples, and 13 are needed, 13 for each of 1 client",
        ),
        ({"name": "corruption", "clients": 4}, "the 4 domains do not hold the same images in the same order (420 to"),
    ],
)
def test_impossible_requests_of_domains_name_the_numbers(options, numbers):
    assert numbers in refused(FOUR, **options)
