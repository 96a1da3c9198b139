"""Flat arrays of who holds what: counts, choices and ranks within groups."""

import numpy as np
import pytest

from fedbench.data.partitions.assignment import (
    Assignment,
    apportion,
    deal_again,
    draw_distinct,
    random_stream,
    shared_image_warnings,
)
from tests.data.partitions.dealing import doubles


def test_counts_are_apportioned_by_largest_remainder_for_each_owner():
    sizes, owners = np.array([50, 30, 20, 1, 1, 1, 7]), np.array([0, 0, 0, 1, 1, 1, 2])
    counts = apportion(sizes, owners, np.array([10, 2, 0]), random_stream(0, "any"))
    assert counts[:3].tolist() == [5, 3, 2]
    assert sorted(counts[3:6].tolist()) == [0, 1, 1]
    assert counts[6] == 0


def test_choices_within_groups_differ_and_are_uniform():
    """Of 6, 3 numbers: each number in half of the choices, each of the 20 choices about equally often."""
    chosen = draw_distinct(np.full(20_000, 6), np.full(20_000, 3), random_stream(1, "dense")).reshape(-1, 3)
    sparse = draw_distinct(np.full(20_000, 30), np.full(20_000, 3), random_stream(1, "sparse")).reshape(-1, 3)
    for found, size, choices in ((chosen, 6, 20), (sparse % 6, 6, None)):
        assert np.bincount(found.ravel(), minlength=size) / 20_000 == pytest.approx(np.full(6, 0.5), abs=0.02)
        if choices:
            sets = np.unique(np.sort(found, axis=1), axis=0, return_counts=True)[1]
            assert len(sets) == choices
            assert sets.min() > 850
    assert not doubles(chosen)
    assert not doubles(sparse)


def test_what_is_dealt_again_is_dealt_evenly_and_to_different_owners():
    hands = deal_again(np.arange(10, 17), np.array([0, 1, 2, 1]), 3, random_stream(0, "any"))
    assert np.bincount(hands.owners).tolist() == [3, 6, 3]
    assert not doubles(hands.rows[hands.owners == 1][None])
    assert set(np.bincount(hands.rows)[10:].tolist()) == {1, 2}


def test_what_several_clients_hold_is_counted_once_for_each_of_them():
    hands, image = Assignment(np.array([0, 0, 1, 2, 3, 3]), np.array([0, 4, 1, 2, 3, 3])), np.array([0, 1, 0, 2])
    (line,) = shared_image_warnings(hands, "test", image)
    assert line == "partition.reuse: 1 of 3 test samples are held by several clients (up to 3)"
    assert not list(shared_image_warnings(Assignment(hands.rows[2:], hands.owners[2:]), "test", np.arange(4)))
