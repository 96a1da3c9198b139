"""Numbers that usually stand for a missing value are named where only the user knows."""

import numpy as np
import pytest

from fedbench import Config
from fedbench.data import Dataset
from fedbench.data.sentinels import sentinel_remarks, sentinel_text

AGES = np.array([31.0, 40, 28, 55, 61, 47])


def with_missing(code: float, rows: int = 2) -> np.ndarray:
    return np.concatenate([AGES, np.full(rows, code)])


@pytest.mark.parametrize("code", [-99, -999, 9999])
def test_a_far_number_in_several_rows_is_named(code):
    for kind in (float, int):
        assert sentinel_text(with_missing(code).astype(kind)) == f"{code} in 2 rows, and 28 to 61 otherwise"


@pytest.mark.parametrize("numbers", [with_missing(-999, 1), with_missing(-998), with_missing(99), AGES, AGES[:0]])
def test_others_are_numbers(numbers):
    assert sentinel_text(numbers) == ""


def test_columns_are_named_in_one_line():
    rows = np.stack([with_missing(-999), with_missing(7), with_missing(9999)], 1)
    (line,) = sentinel_remarks(rows, "feature")
    assert line == (
        "feature 0 holds -999 in 2 rows, and 28 to 61 otherwise, feature 2 holds 9999 in 2 rows, and 28 to 61 "
        "otherwise; if it stands for a missing value, fill it in or leave these rows out"
    )
    assert list(sentinel_remarks(rows[:, 1:2], "feature")) == []


def test_arrays_and_targets_of_a_regression_are_looked_at():
    stream = np.random.default_rng(0)
    x, y = stream.normal(size=(60, 2)).astype(np.float32), stream.normal(size=60) + 5

    def remarks() -> list[str]:
        dataset = Dataset.load(Config(data={"name": (x, y), "task": "regression"}).data)
        return [line for line in dataset.remarks if "a missing value" in line]

    assert remarks() == []
    x[[3, 9], 1] = y[[4, 5]] = -999
    assert [line.split(",")[0] for line in remarks()] == [
        "feature 1 holds -999 in 2 rows",
        "target holds -999 in 2 rows",
    ]


@pytest.mark.parametrize("codes", [(98, 99), (777, 999), (-999.25, -9999.25), (97, 98, 99)])
def test_several_codes_of_one_column_do_not_hide_each_other(codes):
    answers = np.concatenate([np.arange(40) % 5 + 1.0, np.repeat(codes, 3)])
    assert sentinel_text(answers).endswith("in 3 rows, and 1 to 5 otherwise")


@pytest.mark.parametrize(("least", "greatest"), [(18, 90), (0, 100), (60, 220)])
def test_a_negative_code_is_named_at_any_distance_if_no_other_number_is_negative(least, greatest):
    numbers = np.arange(least, greatest + 1.0)
    assert sentinel_text(np.append(numbers, [-99, -99])) == f"-99 in 2 rows, and {least} to {greatest} otherwise"
    for others in ([-99], [-99, -99, -1], [-1, -1], [-9, -9], [99, 99]):
        assert sentinel_text(np.append(numbers, others)) == ""


@pytest.mark.parametrize("numbers", [np.arange(-98, 41.0), np.array([-250.0, -0.5, 12, 1e4])])
def test_a_negative_code_among_negative_numbers_is_a_number(numbers):
    assert sentinel_text(np.append(numbers, [-99, -99])) == ""


def test_numbers_among_which_codes_lie_are_numbers():
    assert sentinel_text(np.arange(60, 100.0).repeat(2)) == ""
