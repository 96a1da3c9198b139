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
        (Beside(order="seen"), None, ["1 May", "2 May"], "t: seen of partition.order_by holds '1 May'; numbers, times"),
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
