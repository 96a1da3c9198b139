"""The clients that the data have."""

from dataclasses import replace

import numpy as np
import pytest

from fedbench.data import Dataset
from tests.data.partitions.dealing import deal, refused
from tests.data.toys import labelled

SIZES = [(8, 3), (1, 0), (6, 2), (0, 4), (2, 1)]
"""Training and test samples of each person."""


def people(sizes: list[tuple[int, int]] = SIZES) -> Dataset:
    """Who has how many samples, in any order."""
    rng = np.random.default_rng(0)
    parts = [rng.permutation(np.repeat(np.arange(len(sizes)), [own[part] for own in sizes])) for part in (0, 1)]
    persons, names = np.concatenate(parts), tuple(f"person {number}" for number in range(len(sizes)))
    return labelled(np.arange(len(persons)) % 2, persons, names, len(parts[0]))


def sizes_of(dealt) -> list[tuple[int, int]]:
    return [(len(own.train) + len(own.val), len(own.test)) for own in dealt.clients]


def test_every_client_has_the_samples_of_one_person_and_who_lacks_a_part_is_left_out_and_counted():
    data = people()
    dealt = deal(data, name="natural")
    assert sizes_of(dealt) == [(8, 3), (6, 2), (2, 1)]
    for own, person in zip(dealt.clients, (0, 2, 4), strict=True):
        assert set(data.domains[np.concatenate([own.train, own.val, own.test])]) == {person}
        assert (own.test >= data.train_rows).all()
    assert any("2 of 5 clients of the data are left out" in line for line in dealt.warnings)


def test_small_clients_are_left_out():
    assert sizes_of(deal(people(), name="natural", min_samples=8)) == [(8, 3), (6, 2)]


def test_as_many_as_are_asked_for_are_drawn_by_the_seed():
    drawn = [sizes_of(deal(people(), seed=seed, name="natural", clients=2)) for seed in range(8)]
    assert {len(sizes) for sizes in drawn} == {2}
    assert len(set(map(tuple, drawn))) > 1
    assert "3 of 5 clients of the data have 2 samples" in refused(people(), name="natural", clients=4)


@pytest.mark.parametrize("asked", [{}, {"clients": 3}], ids=["unsaid", "said"])
def test_fewer_samples_in_all_leave_fewer_clients_and_that_is_said(asked):
    line = refused(people(), name="natural", total=3, **asked)
    assert line.startswith("partition.total = 3: ")
    assert line.endswith(" but partition.clients = 3; raise it, or set partition.clients to at most 2")
    assert refused(people(), name="natural", total=3, clients=4).startswith("partition.clients = 4: ")


def test_no_remedy_is_named_that_is_taken_already():
    line = refused(people(), name="natural", total=8, test="pooled", test_share=0.1)
    assert line.endswith("; raise partition.test_share, raise partition.total or lower partition.min_samples")


def test_somebody_whose_training_samples_are_all_for_validation_is_left_out():
    data = people()
    rows = np.argsort(data.domains[: data.train_rows] == 4, kind="stable")  # the two of person 4 come last
    order = np.concatenate([rows, np.arange(data.train_rows, len(data.targets))])
    own = replace(data, domains=data.domains[order], targets=data.targets[order], val_rows=2)
    assert sizes_of(deal(own, name="natural")) == [(8, 3), (6, 2)]


def test_test_samples_can_be_held_out_of_each_client():
    dealt = deal(people(), name="natural", test="pooled", test_share=0.5)
    assert sizes_of(dealt) == [(6, 5), (4, 4), (2, 2), (2, 1)]
    assert sizes_of(deal(replace(people(), train_rows=len(people().targets)), name="natural")) == [
        (9, 2),
        (6, 2),
        (3, 1),
        (2, 1),
    ], "a fifth, rounded, and at least one"


def test_data_without_clients_and_clients_without_test_samples_are_refused():
    assert "0 domains" in refused(name="natural")
    assert "each of the 3 clients of the data has one sample" in refused(people([(1, 0)] * 3), name="natural")
    assert "set partition.test pooled" in refused(people([(3, 0), (4, 0), (0, 2)]), name="natural", test="part")


@pytest.mark.parametrize("key", ["min_sample", "clientz"])
def test_unknown_keys(key):
    assert f"unknown key partition.{key}" in refused(people(), name="natural", **{key: 3})


def test_a_share_of_the_clients_is_drawn():
    sizes = [(4, 1)] * 20
    drawn = [deal(people(sizes), seed=seed, name="natural", client_share=0.1) for seed in range(4)]
    assert [len(own.clients) for own in drawn] == [2] * 4
    assert len({tuple(int(own.test[0]) for own in dealt.clients) for dealt in drawn}) > 1
    assert len(deal(people(sizes), name="natural", client_share=0.01).clients) == 1
    assert len(deal(people(sizes), name="natural", client_share=0.5, clients=3).clients) == 3
    line = refused(people(sizes), name="natural", client_share=0.1, clients=3)
    assert line.endswith("partition.client_share = 0.1 takes 2 of 20 clients; set one of the two")


def test_parts_of_different_people_are_pooled():
    apart = people([(8, 0), (0, 4), (4, 0)])
    dealt = deal(apart, name="natural")
    assert sizes_of(dealt) == [(6, 2), (3, 1), (3, 1)]
    assert any("no client of the data has samples in both parts" in line for line in dealt.warnings)
    assert "none of the 3 clients" in refused(apart, name="natural", test="part")
    assert not any("in both parts" in line for line in deal(people(), name="natural", test="pooled").warnings)
