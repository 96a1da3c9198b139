"""The samples to distribute: their classes and domains, and what is held out of them before they are dealt."""

from dataclasses import replace

import numpy as np
import pytest

from fedbench.config import PartitionConfig
from fedbench.data.partitions.assignment import Assignment, random_stream
from fedbench.data.partitions.pool import SamplePool, draw_for_clients, draw_total, parts_to_deal, split_hands
from tests.data.toys import EVEN, FOUR


def test_classes_without_samples_have_no_number():
    pool = SamplePool.of(replace(EVEN, targets=EVEN.targets * 2, classes=20))
    assert (pool.classes, pool.numbers.tolist()) == (10, [*range(0, 20, 2)])
    assert [len(rows) for rows in pool.by_class(pool.test)] == [20] * 10


def test_a_total_keeps_domains_and_classes_in_proportion():
    pool = SamplePool.of(FOUR)
    few = draw_total(pool, PartitionConfig(total=400), random_stream(0, "any"))
    assert np.bincount(few.cells(few.train)).tolist() == [10] * 40
    assert (few.test == pool.test).all()


@pytest.mark.parametrize(("test", "held"), [("pooled", 400), ("stratified", 420), ("last", 420), ("part", 480)])
def test_parts_are_merged_and_split_again_unless_they_stay(test, held):
    pool = parts_to_deal(SamplePool.of(FOUR), PartitionConfig(test=test, test_share=0.25), random_stream(0, "any"))
    rows = np.sort(np.concatenate([pool.train, pool.test]))
    assert (rows == np.arange(len(FOUR.targets))).all()
    assert len(pool.test) == held


def test_reserved_rows_are_in_no_part_and_their_groups_are_not_held_out():
    groups = np.arange(len(EVEN.targets)) // 4
    pool = replace(SamplePool.of(EVEN), groups=groups).without(np.arange(0, 40, 4))
    hands = Assignment(pool.train, np.zeros(len(pool.train), np.int64))
    options = PartitionConfig(test="stratified", test_by="patient", test_share=0.5)
    held = split_hands(hands, pool.labels[hands.rows], pool, options, random_stream(0, "any"))[1]
    assert len(held.rows)
    assert held.rows.min() >= 40


def test_clients_draw_different_samples_of_the_classes_they_want():
    pool = SamplePool.of(EVEN)
    counts = np.zeros((2, 10), np.int64)
    counts[0, 3], counts[1, 3] = 100, 7
    hands = draw_for_clients(pool, pool.train, counts, random_stream(0, "any"))
    assert (pool.labels[hands.rows] == 3).all()
    assert [len(np.unique(hands.rows[hands.owners == client])) for client in (0, 1)] == [100, 7]
