"""A table has the columns that show something, and one value for all formats."""

import pandas as pd

from fedbench.report.table import Column, Table, numbers_of
from fedbench.report.typeset import Cell
from fedbench.results.statistics import ends_of, interval

ROWS = [("a", 0.5), ("b", None)]
COLUMNS = [
    Column("method", lambda row: row[0], name="method"),
    Column("score", lambda row: Cell("best", 1) if row[1] else None),
    Column("empty", lambda row: None, note="empty: nothing"),
    Column("share", lambda row: row[1], "{:.2f}".format, "share", "share: of clients", is_optional=True),
    Column("", lambda row: row[1] and interval([row[1]]), name="interval", numbers=ends_of),
]


def test_columns_without_a_text_are_hidden_with_their_notes():
    table = Table.of(COLUMNS, ROWS)
    assert table.heads == ["method", "score", "share"]
    assert [[cell.text for cell in line] for line in table.lines] == [["a", "best", "0.50"], ["b", "", ""]]
    assert table.lines[0][1].place == 1
    assert table.notes == ["share: of clients"]
    assert Table.of(COLUMNS, []).heads == ["method", "score"]


def test_files_have_numbers_with_ends_and_leave_out_what_is_optional():
    ends = {"interval": 0.5, "interval_low": None, "interval_high": None}
    assert numbers_of(COLUMNS, ROWS[0]) == {"method": "a", "share": 0.5, **ends}
    assert numbers_of(COLUMNS, ROWS[1]) == {"method": "b", **dict.fromkeys(ends)}


def test_every_format_shows_the_same_cells():
    lines = [[Cell("a"), Cell("1 %", 1)], [Cell("b"), Cell("2", mark="*")]]
    numbers = pd.DataFrame({"x": [1]})
    table = Table(["m", "n"], lines, title="Title.", notes=["* better."], name="t", numbers=numbers)
    assert table.plain().splitlines()[2].split() == ["a", "1", "%"]
    assert (
        table.typeset("markdown")
        == "Title.\n\n| m | n |\n| --- | ---: |\n| a | **1 %** |\n| b | 2\\* |\n\n\\* better.\n"
    )
    assert "\\caption{Title.}\n\\label{tab:t}" in table.typeset("latex")
    assert table.typeset("csv") == "x\n1\n"
