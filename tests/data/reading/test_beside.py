"""Columns that say how a partition may split the data."""

import numpy as np
import pandas as pd
import pytest

from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.errors import ConfigError


def test_groups_are_numbered_as_they_come_and_places_by_order():
    found = Beside("patient", "seen").arrays(["b", "a", "b"], ["2026-03-01", "2026-01-31", "2026-01-31"], "t")
    assert found["groups"].tolist() == [0, 1, 0]
    assert found["order"].tolist() == [1, 0, 0]
    assert NOTHING.arrays(["b"], [1], "t") == {}


def test_arrays_and_times_have_an_order():
    assert Beside(order="seen").arrays(None, [np.array(3.5), np.array(-1.0)], "t")["order"].tolist() == [1, 0]
    times = [pd.Timestamp(2026, 2, 1), pd.Timestamp(2025, 2, 1)]
    assert Beside(order="seen").arrays(None, times, "t")["order"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("asked", "groups", "order", "line"),
    [
        (Beside("patient"), ["a", None], None, "t: patient of partition.test_by is missing in row 2; fill it in"),
        (Beside(order="seen"), None, [1.0, np.nan], "t: seen of partition.order_by is missing in row 2; fill it in"),
        (
            Beside(order="seen"),
            None,
            ["1 May", "2 May"],
            "t: seen of partition.order_by holds '1 May'; numbers, and",
        ),
    ],
)
def test_what_has_no_group_or_order_is_refused(asked, groups, order, line):
    with pytest.raises(ConfigError) as refused:
        asked.arrays(groups, order, "t")
    assert str(refused.value).startswith(line)


def test_a_name_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"patients: the table has no such column; did you mean"):
        Beside("patients").among(["patient", "age"], "the table", "column")
    assert Beside("domain").among(["patient"], "the table", "column") == NOTHING


@pytest.mark.parametrize(
    ("times", "places"),
    [
        (["2026-01-31 9:05", "2026-01-31 23:05", "2026-01-31 10:00"], [0, 2, 1]),
        (["2026-01-31 09:05", "2026-01-31T08:00", "2026-01-31"], [2, 1, 0]),
        (["2026-01-31T10:00Z", "2026-01-31T09:30+00:00", "2026-01-31T11:30+02:00"], [1, 0, 0]),
        (["2026-03", "2026-02", "2025-12"], [2, 1, 0]),
    ],
)
def test_texts_of_times_are_in_the_order_of_time(times, places):
    assert Beside(order="seen").arrays(None, times, "t")["order"].tolist() == places


@pytest.mark.parametrize(
    ("times", "line"),
    [
        (["2026-01-31 09:05 PM", "2026-01-31 10:05 AM"], "holds '2026-01-31 09:05 PM'; numbers, and dates and times"),
        (["20260131", "20260201"], "holds '20260131'"),
        (["2026-01-31T10:00Z", "2026-01-31T09:30"], "give all times an offset from UTC, or none"),
    ],
)
def test_texts_that_have_no_order_of_time_are_refused(times, line):
    with pytest.raises(ConfigError, match=line):
        Beside(order="seen").arrays(None, times, "t")


def test_groups_that_are_lists_are_refused():
    with pytest.raises(ConfigError, match=r"patient of partition\.test_by holds a list in row 2; a text or number"):
        Beside("patient").arrays(["a", ["b"]], None, "t")
