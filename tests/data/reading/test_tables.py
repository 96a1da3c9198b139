"""Tables of any origin."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fedbench.data.reading.tables import TableOptions, TableReader, TableRows, stacked_lists
from fedbench.errors import ConfigError


def content(table: pd.DataFrame, sizes: dict[str, int] | None = None, **options):
    rows = TableRows("data t", [("t", len(table))])
    return TableReader(TableOptions(**options), "auto").content(rows, table, sizes or {"train": len(table)})


def test_vectors_beside_other_columns_are_features():
    table = pd.DataFrame({"x": [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], "age": [0.5] * 5, "y": [0, 1, 0, 1, 0]})
    (whole,) = content(table).blocks
    np.testing.assert_array_equal(whole.samples[[1, 4]], np.float32([[3, 4, 0.5], [9, 10, 0.5]]))


def test_columns_of_features_have_names():
    table = pd.DataFrame({"x": [[1, 2]] * 5, "job": ["cook", "nurse"] * 2 + ["cook"], "age": [0.5] * 5, "y": [0] * 5})
    assert content(table).columns == ("x[0]", "x[1]", "job=cook", "job=nurse", "age")


def test_rows_are_one_part_unless_there_are_several():
    table = pd.DataFrame({"x": np.arange(10.0), "y": [0, 1] * 5})
    alone = content(table)
    assert (alone.train, alone.test) == (10, 0)
    assert [block.samples[:, 0].tolist() for block in alone.blocks] == [[*range(10)]]
    found = content(table, {"train": 5, "val": 2, "test": 3})
    assert (found.train, found.val, found.test) == (7, 2, 3)
    assert np.concatenate([block.samples[:, 0] for block in found.blocks]).tolist() == [*range(10)]


def test_rows_of_zeros_and_ones_are_several_labels():
    table = pd.DataFrame({"x": np.arange(5.0), "y": [[0, 1], [1, 1], [0, 0], [1, 0], [0, 1]]})
    found = content(table)
    values = np.concatenate([block.targets for block in found.blocks])
    assert found.targets(values).task == "multilabel"
    assert values.tolist() == [[0, 1], [1, 1], [0, 0], [1, 0], [0, 1]]


def test_a_row_is_found_in_its_file():
    rows = TableRows("data t", [("a", 2), ("b", 3)])
    assert [rows.place(row) for row in (1, 2)] == ["data t/a, row 2", "data t/b, row 1"]
    column = pd.Series([[1], [2], [3, 4]], name="x")
    with pytest.raises(ConfigError, match=r"data t/b, row 1: column x holds a list of shape \[2\], before it \[1\]"):
        stacked_lists(rows, column)


def test_python_numbers_are_numbers():
    cells = {"x": [Decimal(row) / 4 for row in range(5)], "n": [*range(5)], "y": [0, 1, 0, 1, 0]}
    found = content(pd.DataFrame(cells, dtype=object))
    np.testing.assert_array_equal(next(iter(found.blocks)).samples[:2], [[0, 0], [0.25, 1]])
    assert found.columns == ("x", "n")
    with pytest.raises(ConfigError, match="row 3: no value in column x"):
        content(pd.DataFrame(cells, dtype=object).assign(x=[Decimal(1), Decimal(2), None, Decimal(4), Decimal(5)]))


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize(
    ("values", "line"),
    [
        (pd.date_range("2020", periods=5), r"column . holds times \(datetime64"),
        (pd.to_timedelta(range(5), "s"), r"column . holds times \(timedelta64"),
        (pd.period_range("2020", periods=5, freq="D"), r"column . holds times \(period"),
        ([{"a": 1}] * 5, "row 1: column . holds a dict; turn the column into numbers or text beforehand"),
        (pd.date_range("2020", periods=5).date, "row 1: column . holds a date; turn"),
    ],
)
def test_cells_that_are_neither_numbers_nor_texts_are_named(name, values, line):
    table = pd.DataFrame({"x": np.arange(5.0), "y": [0, 1, 0, 1, 0]}).assign(**{name: values})
    with pytest.raises(ConfigError, match=line) as caught:
        content(table)
    assert str(caught.value).endswith(", or --data.drop x") == (name == "x")
