"""Partitions: what each scheme promises, and the one line for what it cannot give."""

import pickle

import numpy as np
import pytest

from fedbench.config import Config, PartitionConfig
from fedbench.data import Dataset, Partition, partition
from fedbench.data.partitions.classes import deal_classes
from fedbench.data.partitions.holdings import apportion, different, generator
from fedbench.data.partitions.proportions import draw_ends, pieces
from fedbench.data.partitions.schemes.dirichlet_fixed import fixed_counts
from fedbench.errors import ConfigError
from tests.data.toys import EVEN, FOUR, corrupted, made


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


def classes_dealt(classes: int, clients: int, each: int, how: str = "even", seed: int = 0) -> np.ndarray:
    return deal_classes(classes, clients, PartitionConfig(classes=each, deal=how), generator(seed, "deal"))


def doubles(held: np.ndarray) -> int:
    return int((np.diff(np.sort(held, axis=1), axis=1) == 0).sum())


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


def test_dirichlet_of_fedobp_pools_the_parts_and_holds_out_a_quarter_of_each_client():
    dealt = deal(name="dirichlet", clients=8, val=0)
    assert sorted(np.concatenate([rows for c in dealt.clients for rows in (c.train, c.test)])) == list(range(1200))
    for client in dealt.clients:
        images = len(client.train) + len(client.test)
        assert images >= 10
        assert len(client.test) == images // 4
    assert min(row for c in dealt.clients for row in c.test) < EVEN.train_rows, "test images from the train part too"
    halves = deal(name="dirichlet", clients=8, val=0, test_share=0.5).clients
    assert all(len(c.train) - len(c.test) in (0, 1) for c in halves)


def test_dirichlet_can_keep_the_parts_and_test_follows_train():
    dataset = made([600] * 10, [600] * 10)
    clients = deal(dataset, name="dirichlet", clients=8, val=0, test="part").clients
    assert sorted(np.concatenate([c.train for c in clients])) == list(range(6000))
    assert sorted(np.concatenate([c.test for c in clients])) == list(range(6000, 12000))
    for client in clients:
        train, test = (np.bincount(dataset.labels[rows], minlength=10) for rows in (client.train, client.test))
        assert train.tolist() == test.tolist(), "equal parts are cut at equal places"
        assert train.sum() >= 10


def test_a_class_is_cut_where_the_cumulated_shares_are_rounded_down():
    ends = np.array([[0.25, 0.26, 1.0], [0.1, 0.55, 1.0]])
    assert pieces(ends, np.array([10, 100])).tolist() == [[2, 0, 8], [10, 45, 45]]


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


def test_practical_clients_that_have_their_share_get_no_more():
    """Held before the last class it was dealt, no client had its even share; so no two classes go beyond it."""
    options = PartitionConfig(name="practical", clients=12, alpha=0.1)
    sizes = np.array([100, 90, 80, 70, 60, 200])
    for seed in range(20):
        counts = pieces(draw_ends(sizes, options, generator(seed, "deal"), balanced=True), sizes)  # [classes, clients]
        assert counts.sum(axis=1).tolist() == sizes.tolist()
        before = np.cumsum(counts, axis=0) - counts
        assert (before[counts > 0] < sizes.sum() / 12).all()


def test_practical_clients_differ_less_in_size():
    def largest(name: str) -> int:
        return max(len(c.train) for c in deal(name=name, alpha=0.1, min_images=4, val=0).clients)

    assert largest("practical") < largest("dirichlet")


def test_practical_with_classes_that_have_no_images_left_to_give():
    lacking = made([50, 0, 0], [10, 0, 0])
    assert len(deal(lacking, name="practical", clients=2, min_images=2).clients) == 2


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
    for shares, size, expected in (
        ([0.25, 0.25, 0.5], 10, [3, 3, 4]),
        ([0.55, 0.449, 0.001], 10, [6, 4, 0]),
        ([0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.1], 10, [2, 2, 2, 2, 2, 0, 0]),
    ):
        assert fixed_counts(np.array([shares]), size).tolist() == [expected]


def test_dirichlet_fixed_largest_share_is_as_simulated_for_the_paper():
    """Alpha per class: the largest class holds 66.4 % (alpha 0.1), 37.9 % (0.5), 29.2 % (1.0) of 10 classes."""
    for alpha, share in ((0.1, 0.664), (0.5, 0.379), (1.0, 0.292)):
        options = {"name": "dirichlet-fixed", "clients": 1000, "alpha": alpha, "train_size": 100, "test_size": 1}
        counts = deal(val=0, **options).class_counts(EVEN.labels, 10)
        assert (counts.max(axis=1) / 100).mean() == pytest.approx(share, abs=0.03)


def test_dirichlet_fixed_says_when_a_client_holds_images_twice():
    dealt = deal(name="dirichlet-fixed", clients=3, train_size=900, alpha=0.05, val=0.2)
    assert "hold some training images more than once" in dealt.warnings[0]
    for client in dealt.clients:
        assert len(client.train) + len(client.val) == 900
        assert not np.intersect1d(client.train, client.val).size, "all copies are on one side"


def test_fixed_sizes_are_those_of_fedcac_unless_asked():
    dataset = made([600] * 10, [200] * 10)
    for name in ("pathological", "dirichlet-fixed"):
        clients = deal(dataset, name=name, val=0).clients
        assert {len(c.train) for c in clients} == {500}
        assert {len(c.test) for c in clients} == {100}


def test_iid_keeps_what_is_asked_and_total_is_in_proportion():
    clients = deal(name="iid", clients=5, train_size=40, test_size=7, val=0).clients
    assert {len(c.train) for c in clients} == {40}
    assert {len(c.test) for c in clients} == {7}
    few = deal(name="iid", clients=5, total=205, val=0)
    assert sum(len(c.train) for c in few.clients) == 205
    assert set(few.class_counts(EVEN.labels, 10).sum(axis=0).tolist()) == {20, 21}
    assert sum(len(c.test) for c in few.clients) == 200, "the test part is not asked for"


# -- domains -----------------------------------------------------------------------------------------------------------


def test_a_domain_per_client():
    dealt = deal(FOUR, name="domain", clients=4, val=0)
    for number, client in enumerate(dealt.clients):
        assert set(FOUR.domains[client.train]) == set(FOUR.domains[client.test]) == {number}
        assert (len(client.train), len(client.test)) == (300, 120)


def test_domains_are_shared_evenly_and_sizes_kept():
    clients = deal(FOUR, name="domain", clients=8, train_size=100, test_size=50, val=0).clients
    assert [int(FOUR.domains[c.train[0]]) for c in clients] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {(len(c.train), len(c.test)) for c in clients} == {(100, 50)}
    assert len(np.unique(np.concatenate([c.train for c in clients]))) == 800


def test_domain_shards_of_fedmosaic():
    """Every domain is split to 5 clients with 2 of 10 classes each."""
    dealt = deal(FOUR, name="domain-shards", clients=20, val=0)
    held = [[] for _ in range(4)]
    for number, client in enumerate(dealt.clients):
        assert set(FOUR.domains[client.train]) == set(FOUR.domains[client.test]) == {number // 5}
        assert len(classes_of(client.train, FOUR)) == 2
        assert classes_of(client.train, FOUR) == classes_of(client.test, FOUR)
        held[number // 5] += classes_of(client.train, FOUR)
    assert all(sorted(classes) == list(range(10)) for classes in held), "dealt in pairs"
    drawn = deal(FOUR, name="domain-shards", clients=20, deal="random", images=4, test_images=1, val=0)
    assert {len(c.train) for c in drawn.clients} == {8}


def test_corruption_of_co_pfl():
    """10 clients, 2 of 10 classes, 40 training and 20 test images, each client under one kind of its own."""
    dataset = corrupted(photographs=1000, test=300)
    options = {"name": "corruption", "clients": 10, "images": 20, "test_images": 10, "val": 0}
    clients = deal(dataset, **options).clients
    photograph = np.concatenate([np.tile(np.arange(700), 15), np.tile(np.arange(700, 1000), 15)])
    kinds = [set(dataset.domains[np.concatenate([c.train, c.test])].tolist()) for c in clients]
    assert all(len(kind) == 1 for kind in kinds)
    assert len(set.union(*kinds)) == 10
    for client in clients:
        assert (len(client.train), len(client.test)) == (40, 20)
        assert classes_of(client.train, dataset) == classes_of(client.test, dataset)
        assert len(classes_of(client.train, dataset)) == 2
    photographs = photograph[np.concatenate([rows for c in clients for rows in (c.train, c.test)])]
    assert len(np.unique(photographs)) == len(photographs), "no photograph twice, under whatever corruption"


def test_fifty_clients_share_fifteen_kinds():
    dataset = corrupted(1400, test=700)
    dealt = deal(dataset, name="corruption", clients=50, images=5, test_images=5)
    of_client = [int(dataset.domains[c.train[0]]) for c in dealt.clients]
    assert set(np.bincount(of_client, minlength=15)) == {3, 4}


def test_corrupted_test_images_alone_are_split_by_photograph():
    dataset = corrupted(photographs=600, kinds=3, test=600)
    clients = deal(dataset, name="corruption", clients=5, images=10, test_images=5, val=0).clients
    photographs = np.concatenate([rows for c in clients for rows in (c.train, c.test)]) % 600
    assert len(photographs) == len(np.unique(photographs)) == 150


def test_a_photograph_in_the_public_set_is_dealt_under_no_corruption():
    dataset = corrupted(photographs=400, kinds=3, test=100)
    dealt = deal(dataset, name="corruption", clients=5, public=60)
    held = np.concatenate([rows for c in dealt.clients for rows in (c.train, c.val)])
    assert not np.intersect1d(held % 300, dealt.public % 300).size


# -- a data set with one part, options that change nothing -------------------------------------------------------------


@pytest.mark.parametrize("name", ["iid", "shards", "pathological", "dirichlet-fixed", "practical"])
def test_without_a_test_part_every_scheme_holds_out_its_own(name):
    one_part = made([40] * 10, [0] * 10)
    dealt = deal(one_part, name=name, clients=5, train_size=20, test_size=4, min_images=4, val=0)
    assert dealt.warnings[0] == "the data set is not split: 25% of its images are held out for testing"
    for client in dealt.clients:
        assert len(client.test)
        assert not np.intersect1d(client.train, client.test).size
    everything = [np.unique(np.concatenate([getattr(c, part) for c in dealt.clients])) for part in ("train", "test")]
    assert not np.intersect1d(*everything).size, "nobody is tested on another's training image"


def test_options_that_a_scheme_does_not_read_are_named():
    assert deal(name="iid", clients=5).warnings == ()
    warnings = deal(name="iid", clients=5, alpha=0.1, classes=3).warnings
    assert warnings[0] == "partition.alpha = 0.1 changes nothing: partition iid does not use it"
    assert "partition.classes = 3" in warnings[1]


# -- validation --------------------------------------------------------------------------------------------------------


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


def test_counts_are_apportioned_by_largest_remainder_for_each_owner():
    sizes, owners = np.array([50, 30, 20, 1, 1, 1, 7]), np.array([0, 0, 0, 1, 1, 1, 2])
    counts = apportion(sizes, owners, np.array([10, 2, 0]), generator(0, "any"))
    assert counts[:3].tolist() == [5, 3, 2]
    assert sorted(counts[3:6].tolist()) == [0, 1, 1]
    assert counts[6] == 0


def test_choices_within_groups_differ_and_are_uniform():
    """Of 6, 3 numbers: each number in half of the choices, each of the 20 choices about equally often."""
    chosen = different(np.full(20_000, 6), np.full(20_000, 3), generator(1, "dense")).reshape(-1, 3)
    sparse = different(np.full(20_000, 30), np.full(20_000, 3), generator(1, "sparse")).reshape(-1, 3)
    for found, size, choices in ((chosen, 6, 20), (sparse % 6, 6, None)):
        assert np.bincount(found.ravel(), minlength=size) / 20_000 == pytest.approx(np.full(6, 0.5), abs=0.02)
        if choices:
            sets = np.unique(np.sort(found, axis=1), axis=0, return_counts=True)[1]
            assert len(sets) == choices
            assert sets.min() > 850
    assert not doubles(chosen)
    assert not doubles(sparse)


# -- identity ----------------------------------------------------------------------------------------------------------

FINGERPRINTS = {
    "iid": "1f6ef757d3c1c247",
    "shards": "479a3e1ac653d997",
    "pathological": "7b612f5c74282822",
    "dirichlet": "b5c4defa622c5fa5",
    "dirichlet-fixed": "51924ca9032d880f",
    "practical": "0d774650dd759475",
    "domain": "a4fccab92344a97f",
    "domain-shards": "c72c25b6a197b2af",
    "corruption": "594e717982729d06",
}
OPTIONS = {"train_size": 50, "test_size": 10, "public": 20}


def fingerprint(name: str) -> str:
    dataset = {"domain": FOUR, "domain-shards": FOUR, "corruption": corrupted()}.get(name, EVEN)
    return deal(dataset, name=name, clients=8, **OPTIONS).fingerprint()[:16]


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_seed_means_the_same_partition_on_every_machine(name):
    assert fingerprint(name) == FINGERPRINTS[name]


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_partition_travels_whole(name):
    dealt = deal(FOUR if name != "corruption" else corrupted(), name=name, clients=8, **OPTIONS)
    again = pickle.loads(pickle.dumps(dealt))
    assert again.fingerprint() == dealt.fingerprint()
    assert (again.warnings, again.seed) == (dealt.warnings, dealt.seed)
    assert all(rows.dtype == np.int64 for c in again.clients for rows in (c.train, c.val, c.test))


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
        ({"name": "dirichlet", "min_images": 121}, "10 clients with at least 121 training or test image(s) each need"),
        (
            {"name": "practical", "min_images": 101, "test": "part"},
            "partition practical: 10 clients with at least 101 training image(s) each need 1010, there are 1000",
        ),
        (
            {"name": "dirichlet", "min_images": 115, "max_draws": 17},
            "none of 17 draws with alpha 0.5 gave each of 10 clients 115 images and a test image",
        ),
        (
            {"name": "practical", "min_images": 95, "max_draws": 17, "test": "part"},
            "none of 17 draws with alpha 0.5 gave each of 10 clients 95 training images and a test image",
        ),
        ({"name": "dirichlet", "total": 1201}, "partition.total = 1201: there are 1200 images to deal"),
        ({"name": "iid", "total": 1001}, "partition.total = 1001: there are 1000 images to deal"),
        ({"name": "iid", "train_size": 101}, "10 clients with at least 101 training image(s) each need 1010"),
        ({"name": "shards", "test": "drawn"}, "partition.test = drawn: shards does not know it"),
        ({"name": "domain"}, "partition domain: the data set has 0 domains"),
        ({"name": "domain-shards"}, "partition domain-shards: the data set has 0 domains"),
        ({"name": "corruption"}, "partition corruption: the data set has 0 domains"),
        ({"noise_clients": [10]}, "partition.noise_clients: client 10 does not exist; clients are 0 to 9"),
        ({"flip_clients": [3, 10]}, "partition.flip_clients: client 10 does not exist; clients are 0 to 9"),
        ({"flip_clients": [-1]}, "client -1 does not exist"),
        ({"public": 1001}, "at most 1000 class-balanced images are there"),
        ({"name": "iid", "public": 1000}, "each need 10, there are 0"),
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


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (
            {"name": "domain", "clients": 6},
            "partition.clients = 6 is not a multiple of the 4 domains (art, cartoon, photo, sketch)",
        ),
        (
            {"name": "domain", "clients": 4, "train_size": 301},
            "in domain art, 1 clients with at least 301 training image(s) each need 301, there are 300",
        ),
        (
            {"name": "domain-shards", "clients": 8, "test_images": 13},
            "has 12 test images, and 1 clients x 13 need 13",
        ),
        ({"name": "corruption", "clients": 4}, "the 4 domains do not hold the same images in the same order (420 to"),
    ],
)
def test_impossible_requests_of_domains_name_the_numbers(options, numbers):
    assert numbers in refused(FOUR, **options)


def test_a_missing_part_is_pooled_only_unless_told_otherwise():
    assert "0 test images are there; set partition.test pooled" in refused(made([9], [0]), name="iid", test="part")
    assert "0 training images are there" in refused(made([0], [9]), name="iid", test="part")


def test_drawn_test_images_need_every_class_that_is_held():
    lacking = made([50, 50], [50, 0])
    assert "class 1 has no test image" in refused(lacking, name="practical", clients=2, test="drawn")
