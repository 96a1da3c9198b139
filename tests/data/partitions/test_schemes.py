"""Partitions: what each scheme promises, and the one line for what it cannot give."""

from dataclasses import replace

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import partition
from tests.data.partitions.dealing import deal, refused
from tests.data.partitions.fingerprints import FINGERPRINTS, OPTIONS
from tests.data.toys import EVEN, FOUR, corrupted, made


@pytest.mark.parametrize("name", ["iid", "shards", "pathological", "dirichlet-fixed", "practical"])
def test_without_a_test_part_every_scheme_holds_out_its_own(name):
    one_part = made([40] * 10, [0] * 10)
    dealt = deal(one_part, name=name, clients=5, train_size=20, test_size=4, min_images=4, val=0)
    whose = "every client's samples" if name == "practical" else "the samples"
    assert dealt.warnings[0] == f"the data have one part: each seed draws 20% of {whose} for testing, by class"
    for client in dealt.clients:
        assert len(client.test)
        assert not np.intersect1d(client.train, client.test).size
    everything = [np.unique(np.concatenate([getattr(c, part) for c in dealt.clients])) for part in ("train", "test")]
    assert not np.intersect1d(*everything).size, "nobody is tested on another's training image"


def test_options_that_a_scheme_does_not_read_are_named():
    assert deal(name="iid", clients=5, train_size=3).warnings == ()
    warnings = deal(name="iid", clients=5, alpha=0.1, classes=3).warnings
    assert warnings[0] == "partition.alpha = 0.1 has no effect: partition iid does not use it"
    assert "partition.classes = 3" in warnings[1]


def test_more_samples_than_memory_holds_are_one_line():
    line = refused(name="dirichlet-fixed", clients=10, train_size=10**13)
    assert "the samples of 10 clients do not fit into memory (Unable to allocate" in line
    assert line.endswith("; lower partition.clients, or the number of samples of each")


def fingerprint(name: str) -> str:
    dataset = {"domain": FOUR, "domain-shards": FOUR, "corruption": corrupted()}.get(name, EVEN)
    return deal(dataset, name=name, clients=8, **OPTIONS).fingerprint()[:16]


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_seed_means_the_same_partition_on_every_machine(name):
    assert fingerprint(name) == FINGERPRINTS[name]


def test_seed_and_partition_seed():
    assert deal(seed=0).fingerprint() != deal(seed=1).fingerprint()
    fixed = [partition(EVEN, Config(partition={"seed": 5}), seed).fingerprint() for seed in (0, 1)]
    assert fixed[0] == fixed[1] == deal(seed=5).fingerprint()


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"name": "iid", "clients": 201}, "201 clients with at least 1 test sample each: 201 in all, there are 200"),
        ({"name": "shards", "classes": 11}, "partition.classes = 11: the data set has 10 classes"),
        ({"name": "pathological", "classes": 11}, "partition.classes = 11: the data set has 10 classes"),
        (
            {"name": "shards", "images": 51},
            "has 100 training samples, and 102 are needed, 51 for each of 2 clients; set partition.reuse true",
        ),
        (
            {"name": "shards", "test_images": 11},
            "has 20 test samples, and 22 are needed, 11 for each of 2 clients; set partition.reuse true, so that "
            "clients share samples, or lower partition.test_images",
        ),
        (
            {"name": "shards", "images": 101},
            "has 100 training samples, and 202 are needed, 101 for each of 2 clients; lower partition.images",
        ),
        (
            {"name": "shards", "images": 101, "reuse": True},
            "has 100 training samples, and a client needs 101 different ones; lower partition.images",
        ),
        ({"name": "shards", "clients": 200}, "has 20 test samples, and 40 are needed, 1 for each of 40 clients"),
        (
            {"name": "pathological", "train_size": 202},
            "has 100 train samples, a client needs 101 of it; lower partition.train_size",
        ),
        ({"name": "pathological", "train_size": 2, "test_size": 1}, "partition.test_size = 1: a client has 2 classes"),
        ({"name": "dirichlet", "min_images": 121}, "10 clients with at least 121 training or test samples each: "),
        (
            {"name": "practical", "min_images": 101, "test": "part"},
            "partition practical: 10 clients with at least 101 training samples each: 1010 in all, there are 1000",
        ),
        (
            {"name": "dirichlet", "min_images": 115, "max_draws": 17},
            "none of 17 draws with alpha 0.5 gave each of 10 clients 115 samples and a test sample",
        ),
        (
            {"name": "practical", "min_images": 95, "max_draws": 17, "test": "part"},
            "none of 17 draws with alpha 0.5 gave each of 10 clients 95 training samples and a test sample",
        ),
        ({"name": "dirichlet", "total": 1201}, "partition.total = 1201: there are 1200 samples; choose"),
        ({"name": "iid", "total": 1001}, "partition.total = 1001: there are 1000 samples; choose"),
        ({"name": "iid", "train_size": 101}, "10 clients with at least 101 training samples each: 1010 in all"),
        ({"name": "shards", "test": "drawn"}, "partition.test = drawn: shards does not support it"),
        ({"name": "domain"}, "partition domain: the data set has 0 domains"),
        ({"name": "domain-shards"}, "partition domain-shards: the data set has 0 domains"),
        ({"name": "corruption"}, "partition corruption: the data set has 0 domains"),
        ({"noise_clients": [10]}, "partition.noise_clients: client 10 does not exist; clients are 0 to 9"),
        ({"flip_clients": [3, 10]}, "partition.flip_clients: client 10 does not exist; clients are 0 to 9"),
        ({"flip_clients": [-1]}, "client -1 does not exist"),
        ({"name": "iid", "public": 1000}, "each: 10 in all, there are 0"),
    ],
)
def test_impossible_requests_name_the_numbers(options, numbers):
    assert numbers in refused(**options)


def test_a_test_part_of_ones_own_that_is_merged_is_said():
    line = "the data's own test part (200 samples) is merged with the training part, and 25% of all samples are held"
    assert deal(name="dirichlet").warnings[0].startswith(line)
    assert not deal(name="dirichlet", test="part").warnings
    assert not deal(replace(EVEN, official=True), name="dirichlet").warnings


def test_a_missing_part_is_pooled_only_unless_told_otherwise():
    assert "the data have 0 test samples; set partition.test stratified" in refused(
        made([9], [0]), name="iid", test="part"
    )
    assert "the data have 0 training samples" in refused(made([0], [9]), name="iid", test="part")
