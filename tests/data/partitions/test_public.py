"""The public set: its size, what it is balanced over, and that no client holds an image of it."""

from itertools import pairwise

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from fedbench.errors import ConfigError
from tests.data.loading import refused
from tests.data.toys import EVEN, FOUR, made


def deal(dataset: Dataset = EVEN, seed: int = 0, name: str = "iid", **public) -> Partition:
    return partition(dataset, Config(partition={"name": name, "clients": 4}, public=public), seed)


def counts(dealt: Partition, dataset: Dataset = EVEN) -> list[int]:
    return np.bincount(dataset.labels[dealt.public], minlength=10).tolist()


@pytest.mark.parametrize("name", ["iid", "shards", "dirichlet", "practical"])
def test_it_is_balanced(name):
    dealt = deal(name=name, size=105)
    assert len(dealt.public) == len(np.unique(dealt.public)) == 105
    assert sorted(counts(dealt)) == [10] * 5 + [11] * 5
    assert dealt.public.max() < EVEN.train_rows


def test_none_unless_asked():
    assert deal().public is None


def test_balanced_over_domains_and_classes():
    """FedMosaic's 80 images of four domains with ten classes are two of each."""
    public = deal(FOUR, size=80, balance="domains").public
    cells = FOUR.domains[public] * 10 + FOUR.labels[public]
    assert np.bincount(cells).tolist() == [2] * 40


def test_skewed_over_classes_by_dirichlet():
    spread = {
        alpha: np.mean([np.ptp(counts(deal(seed=seed, size=100, balance="dirichlet", alpha=alpha))) for seed in (1, 2)])
        for alpha in (1, 1000)
    }
    assert spread[1] > 15 > 5 > spread[1000]
    assert len(deal(size=100, balance="dirichlet", alpha=1000).public) == 100


def test_any_images():
    public = deal(size=105, balance="none").public
    assert len(np.unique(public)) == 105
    assert len(set(counts(deal(size=105, balance="none")))) > 2


@pytest.mark.parametrize("balance", ["classes", "none"])
def test_smaller_sets_from_one_reserve_are_parts_of_larger_ones_and_clients_stay(balance):
    sets = [deal(size=size, reserve=200, balance=balance) for size in (200, 105, 50, 7)]
    for large, small in pairwise(sets):
        assert np.isin(small.public, large.public).all()
        for one, other in zip(large.clients, small.clients, strict=True):
            np.testing.assert_array_equal(one.train, other.train)
    held = np.concatenate([rows for c in sets[-1].clients for rows in (c.train, c.val)])
    assert not np.isin(held, sets[0].public).any(), "what is reserved and not used is nobody's"
    assert len(held) == 800


def test_skews_from_one_reserve_leave_the_clients_as_they_are():
    sets = [deal(size=30, reserve=300, balance="dirichlet", alpha=alpha) for alpha in (0.5, 5)]
    assert sets[0].public.tolist() != sets[1].public.tolist()
    for one, other in zip(sets[0].clients, sets[1].clients, strict=True):
        np.testing.assert_array_equal(one.train, other.train)


@pytest.mark.parametrize(
    ("public", "numbers"),
    [
        ({"size": 1001}, "would give 101 of its 100 training samples; at most 1000 class-balanced samples are there"),
        ({"size": 1001, "balance": "none"}, "public.size = 1001: there are 1000 training samples"),
        ({"size": 10, "balance": "domains"}, "public.balance = domains: the data set has 0 domains"),
        ({"size": 900, "balance": "dirichlet", "alpha": 0.1}, "of its 100 training samples; raise public.alpha (0.1)"),
        ({"size": 10, "reserve": 9}, "public.reserve = 9: the public set has 10 samples"),
        ({"size": 10, "reserve": 1001}, "would give 101 of its 100 training samples"),
    ],
)
def test_impossible_requests_name_the_numbers(public, numbers):
    assert numbers in refused(deal, **public)


def test_a_domain_without_enough_images_is_named():
    with pytest.raises(ConfigError, match="of domain a would give 2 of its 1 training samples; at most 4 domain- and"):
        deal(made([1, 1], [9, 9], ("a", "b")), size=8, balance="domains")
