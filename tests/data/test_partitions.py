"""Partitions: what each scheme promises, and the one line for what it cannot give."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from fedbench.data.noise import client_labels
from fedbench.data.partitions import deal_classes, fixed_counts, generator, proportional
from fedbench.errors import ConfigError


def made(train: list[int], test: list[int]) -> Dataset:
    """A data set with so many images per class, shuffled within each part."""
    rng = np.random.default_rng(7)
    parts = [rng.permutation(np.repeat(np.arange(len(counts)), counts)) for counts in (train, test)]
    images = np.zeros((sum(train) + sum(test), 1, 2, 2), np.uint8)
    return Dataset("toy", images, np.concatenate(parts), None, len(train), (), (), sum(train), (0.0,), (1.0,))


EVEN = made([100] * 10, [20] * 10)


def deal(dataset: Dataset = EVEN, seed: int = 0, val: float = 0.1, public: int = 0, **options) -> Partition:
    return partition(dataset, Config(partition=options, data={"val": val}, public={"size": public}), seed)


def refused(dataset: Dataset = EVEN, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        deal(dataset, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def classes_of(rows: np.ndarray, dataset: Dataset = EVEN) -> list[int]:
    return np.unique(dataset.labels[rows]).tolist()


# -- schemes -----------------------------------------------------------------------------------------------------------


def test_iid_deals_everything_in_equal_pieces():
    clients = deal(name="iid", clients=7, val=0).clients
    assert sorted(np.concatenate([c.train for c in clients])) == list(range(1000))
    assert sorted(np.concatenate([c.test for c in clients])) == list(range(1000, 1200))
    assert {len(c.train) for c in clients} == {142, 143}


def test_shards_of_co_pfl():
    """10 clients, 2 of 10 classes, 50 training images of each; test images of the same classes."""
    clients = deal(name="shards", clients=10, classes=2, images=50, val=0).clients
    for client in clients:
        assert np.bincount(EVEN.labels[client.train], minlength=10).tolist().count(50) == 2
        assert np.bincount(EVEN.labels[client.test], minlength=10).tolist().count(10) == 2
        assert classes_of(client.train) == classes_of(client.test)


def test_shards_keep_the_asked_number_of_test_images():
    clients = deal(name="shards", clients=5, test_images=7).clients
    assert {len(c.test) for c in clients} == {14}


def test_shards_give_every_class_equally_often():
    held = deal_classes(10, Config(partition={"clients": 15}).partition, generator(0, "deal"))
    assert np.bincount(held.ravel()).tolist() == [3] * 10


def test_shards_with_every_class_for_everybody():
    held = deal_classes(6, Config(partition={"clients": 40, "classes": 6}).partition, generator(0, "deal"))
    assert (np.sort(held, axis=1) == np.arange(6)).all()


def test_pathological_of_fedcac():
    clients = deal(name="pathological", clients=40, train_size=100, test_size=15, val=0).clients
    for client in clients:
        assert sorted(np.bincount(EVEN.labels[client.train]).tolist())[-2:] == [50, 50]
        assert sorted(np.bincount(EVEN.labels[client.test]).tolist())[-2:] == [7, 8]
        assert classes_of(client.train) == classes_of(client.test)
        assert len(np.unique(client.train)) == 100
    assert len({tuple(classes_of(c.train)) for c in clients}) > 10
    everything = np.concatenate([c.train for c in clients])
    assert len(np.unique(everything)) < len(everything), "clients may share images"


def test_dirichlet_deals_everything_and_test_follows_train():
    dataset = made([600] * 10, [600] * 10)
    clients = deal(dataset, name="dirichlet", clients=8, val=0).clients
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


def test_dirichlet_fixed_of_fedcac():
    dataset = made([600] * 10, [600] * 10)
    clients = deal(dataset, name="dirichlet-fixed", clients=40, train_size=100, test_size=100, val=0).clients
    for client in clients:
        train, test = (np.bincount(dataset.labels[rows], minlength=10) for rows in (client.train, client.test))
        assert train.tolist() == test.tolist(), "one draw of proportions for both parts"
        assert len(np.unique(client.train)) == len(np.unique(client.test)) == 100


def test_dirichlet_fixed_counts_are_rounded_class_by_class_and_late_classes_may_starve():
    assert fixed_counts(np.array([0.25, 0.25, 0.5]), 10).tolist() == [3, 3, 4]
    assert fixed_counts(np.array([0.55, 0.449, 0.001]), 10).tolist() == [6, 4, 0]
    assert fixed_counts(np.array([0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.1]), 10).tolist() == [2, 2, 2, 2, 2, 0, 0]


def test_dirichlet_fixed_largest_share_is_as_simulated_for_the_paper():
    """Alpha per class: the largest class holds 66.4 % (alpha 0.1), 37.9 % (0.5), 29.2 % (1.0) of 10 classes."""
    for alpha, share in ((0.1, 0.664), (0.5, 0.379), (1.0, 0.292)):
        options = {"name": "dirichlet-fixed", "clients": 1000, "alpha": alpha, "train_size": 100, "test_size": 1}
        counts = deal(val=0, **options).class_counts(EVEN.labels, 10)
        assert (counts.max(axis=1) / 100).mean() == pytest.approx(share, abs=0.03)


def test_dirichlet_fixed_says_when_a_client_holds_images_twice():
    dealt = deal(name="dirichlet-fixed", clients=3, train_size=900, alpha=0.05, val=0.2)
    assert "hold some training images more than once" in dealt.notes[0]
    for client in dealt.clients:
        assert len(client.train) + len(client.val) == 900
        assert not np.intersect1d(client.train, client.val).size, "all copies are on one side"


# -- validation, public set, flips ------------------------------------------------------------------------------------


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


def test_proportional_counts_add_up():
    assert proportional(np.array([50, 30, 20]), 10, np.random.default_rng(0)).tolist() == [5, 3, 2]
    assert sorted(proportional(np.array([1, 1, 1]), 2, np.random.default_rng(0)).tolist()) == [0, 1, 1]


@pytest.mark.parametrize("name", ["iid", "shards", "pathological", "dirichlet", "dirichlet-fixed"])
def test_the_public_set_is_balanced_and_disjoint_from_every_client(name):
    dealt = deal(name=name, public=105, train_size=50, test_size=10)
    counts = np.bincount(EVEN.labels[dealt.public], minlength=10)
    assert len(dealt.public) == len(np.unique(dealt.public)) == 105
    assert sorted(counts.tolist()) == [10] * 5 + [11] * 5
    assert dealt.public.max() < EVEN.train_rows
    for client in dealt.clients:
        for rows in (client.train, client.val, client.test):
            assert not np.intersect1d(rows, dealt.public).size


def test_no_public_set_unless_asked():
    assert deal().public is None


def test_flipped_clients_see_the_next_class_in_every_part():
    config = Config(partition={"name": "iid", "clients": 3, "flip_clients": [1]})
    dealt = partition(EVEN, config, 0)
    for part in ("train", "val", "test"):
        for client, shift in ((0, 0), (1, 1), (2, 0)):
            seen = client_labels(EVEN, dealt, config, client, part).numpy()
            np.testing.assert_array_equal(seen, (EVEN.labels[getattr(dealt.clients[client], part)] + shift) % 10)


# -- identity ----------------------------------------------------------------------------------------------------------

FINGERPRINTS = {
    "iid": "c593767383d692a5",
    "shards": "79823ab552196d0a",
    "pathological": "c1469e0aeee4726b",
    "dirichlet": "175d0ab9baac807f",
    "dirichlet-fixed": "8155d50860e8e007",
}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_seed_means_the_same_partition_on_every_machine(name):
    assert deal(name=name, train_size=50, test_size=10, public=20).fingerprint()[:16] == FINGERPRINTS[name]


def test_seed_and_partition_seed():
    assert deal(seed=0).fingerprint() != deal(seed=1).fingerprint()
    fixed = [partition(EVEN, Config(partition={"seed": 5}), seed).fingerprint() for seed in (0, 1)]
    assert fixed[0] == fixed[1] == deal(seed=5).fingerprint()


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


# -- impossible requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"name": "iid", "clients": 201}, "201 clients with at least 1 test image(s) each need 201, there are 200"),
        ({"name": "shards", "classes": 11}, "partition.classes = 11: the data set has 10 classes"),
        ({"name": "pathological", "classes": 11}, "partition.classes = 11: the data set has 10 classes"),
        (
            {"name": "shards", "images": 51},
            "has 100 training images, and 2 clients x 51 need 102; lower partition.images",
        ),
        (
            {"name": "shards", "test_images": 11},
            "has 20 test images, and 2 clients x 11 need 22; lower partition.test_i",
        ),
        ({"name": "shards", "clients": 200}, "has 20 test images, and 40 clients x 1 need 40"),
        (
            {"name": "pathological", "train_size": 202},
            "has 100 train images, a client needs 101 of it (202 of 2 classes)",
        ),
        ({"name": "pathological", "train_size": 2, "test_size": 1}, "partition.test_size = 1: a client has 2 classes"),
        ({"name": "dirichlet", "min_images": 101}, "10 clients with at least 101 training image(s) each need 1010"),
        (
            {"name": "dirichlet", "min_images": 95, "max_draws": 17},
            "none of 17 draws with alpha 0.5 gave each of 10 clients 95 training images",
        ),
        ({"flip_clients": [3, 10]}, "partition.flip_clients: client 10 does not exist; clients are 0 to 9"),
        ({"flip_clients": [-1]}, "client -1 does not exist"),
        ({"public": 1001}, "at most 1000 class-balanced images are there"),
        ({"public": 1000}, "need 100, there are 0"),
    ],
)
def test_impossible_requests_name_the_numbers(options, numbers):
    assert numbers in refused(**options)


def test_a_class_without_images():
    lacking = made([10, 0, 10], [5, 5, 5])
    assert "class 1 has no training image" in refused(lacking, name="dirichlet-fixed", train_size=5, test_size=5)
    assert "class 1 has 0 training images" in refused(lacking, name="shards", clients=3)
    assert "class 1 would give 1 of its 0 training images" in refused(lacking, public=3)
    assert len(deal(lacking, name="dirichlet", clients=2, min_images=1).clients) == 2
