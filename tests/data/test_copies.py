"""Samples that stand in two parts."""

import numpy as np

from fedbench.data.copies import Copies


def remarks(train: np.ndarray, test: np.ndarray) -> list[str]:
    copies = Copies(len(train))
    for part in (train, test):
        for start in range(0, len(part), 7):
            copies.add(part[start : start + 7])
    return list(copies.remarks())


def test_equal_samples_on_both_sides_are_counted_whatever_the_blocks():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    assert remarks(rows[:30], rows[30:]) == []
    assert remarks(rows[:30], np.concatenate([rows[:2], rows[30:]])) == [
        "2 of 32 test samples are training samples too, number for number"
    ]
    assert remarks(rows, rows[:5])[0].endswith("at random, draw the same ones every time")


def test_equal_samples_have_the_number_of_the_first_of_them():
    copies = Copies(6)
    copies.add(np.array([[0, 1], [2, 3], [0, 1], [4, 5], [2, 3], [0, 1]]))
    assert sorted(map(tuple, copies.equal_rows().tolist())) == [(0, 0), (1, 1), (2, 0), (4, 1), (5, 0)]
    assert list(copies.remarks()) == []


def test_samples_of_two_parts_are_named_by_their_parts():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    copies = Copies(30, 20)
    copies.add(np.concatenate([rows[:30], rows[:1], rows[30:49], rows[:2], rows[30:38]]))
    assert list(copies.remarks()) == [
        "1 of 20 validation samples are training samples too, number for number",
        "8 of 10 test samples are validation samples too, number for number: where the parts are drawn at random, draw "
        "the same ones every time",
        "2 of 10 test samples are training samples too, number for number: where the parts are drawn at random, draw "
        "the same ones every time",
    ]
