"""Published numbers beside ours."""

import pytest

from fedbench.results.statistics import interval
from fedbench_papers.tables.reproduction import CellRecord, ComparedNumber, ReproductionRecord


def one(ours, **more) -> ComparedNumber:
    values = {
        "cell": "c",
        "method": "m",
        "table": "1",
        "published": 80.0,
        "deviation": None,
        "repeats": None,
        "point": "after_agg",
        "scored": "",
    }
    return ComparedNumber(**{**values, **more}, ours=ours)


def test_a_difference_in_points_and_in_standard_errors():
    found = one(interval([81.0, 83.0, 85.0]))
    assert found.difference == pytest.approx(3)
    assert found.error == pytest.approx(2 / 3**0.5)
    assert found.errors == pytest.approx(3 / (2 / 3**0.5))


def test_the_papers_deviation_counts_too():
    found = one(interval([81.0, 83.0, 85.0]), deviation=2.0, repeats=4)
    assert found.error == pytest.approx((4 / 3 + 1) ** 0.5)


def test_one_seed_has_no_error_and_none_no_difference():
    assert one(interval([81.0])).difference == pytest.approx(1)
    assert one(interval([81.0])).errors is None
    assert one(None).difference is None


def test_it_is_read_as_it_was_written(tmp_path):
    cell = CellRecord("cifar10, x", "cells/x", None, True, "last", [{"method": "local", "mean": 1.0}])
    made = ReproductionRecord("a/b", "what", "small", ["open"], {"rounds": 3}, 4, [cell])
    assert ReproductionRecord.read(tmp_path).cells == []
    made.write(tmp_path)
    assert ReproductionRecord.read(tmp_path) == made
