"""Cells that cannot be read are named with their place."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedbench.data.reading.cells import TableRows, check_totals, stacked_lists, with_clean_texts
from fedbench.errors import ConfigError
from tests.data.reading.test_tables import FRAME, content, decisions, refused


def test_a_row_is_found_in_its_file():
    rows = TableRows("data t", [("a", 2), ("b", 3)])
    assert [rows.place(row) for row in (1, 2)] == ["data t/a, row 2", "data t/b, row 1"]
    column = pd.Series([[1], [2], [3, 4]], name="x")
    with pytest.raises(
        ConfigError, match=r"data t/b, row 1: column x holds a list of shape \[2\], before it \[1\]; crop"
    ):
        stacked_lists(rows, column)


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize(
    ("values", "line"),
    [
        (pd.date_range("2020", periods=5), r"column . holds times \(datetime64"),
        (pd.to_timedelta(range(5), "s"), r"column . holds times \(timedelta64"),
        (pd.period_range("2020", periods=5, freq="D"), r"column . holds times \(period"),
        ([{"a": 1}] * 5, "row 1: column . holds a dict; turn the column into numbers or text beforehand"),
        (
            np.arange(5) * 1j,
            "column . holds complex numbers; write a column of the real and one of the imaginary parts",
        ),
        ([0, "1", 2, 3, 4], "column . holds numbers and texts, 0 and '1'; write one kind"),
        ([0, [1], 2, 3, 4], r"column . holds numbers and lists, 0 and \[1\]; write one kind"),
        ([b"p"] * 5, "column . holds bytes; turn the column into numbers or text beforehand"),
        (pd.Categorical([b"p"] * 5), "column . holds bytes; turn"),
        (pd.array([b"p"] * 5, pd.ArrowDtype(pa.binary())), "column . holds bytes; turn"),
        (pd.date_range("2020", periods=5).date, "row 1: column . holds a date; turn"),
    ],
)
def test_cells_that_are_neither_numbers_nor_texts_are_named(name, values, line):
    table = pd.DataFrame({"x": np.arange(5.0), "y": [0, 1, 0, 1, 0]}).assign(**{name: values})
    with pytest.raises(ConfigError, match=line) as caught:
        content(table)
    assert str(caught.value).endswith(", or --data.drop x") == (name == "x")


def test_python_numbers_may_be_missing_in_any_way():
    for missing in (None, pd.NA, float("nan")):
        cells = pd.array([1, 2.5, missing, 4, 5], dtype=object)
        table = pd.DataFrame({"x": cells, "y": [0, 1, 0, 1, 0]})
        with pytest.raises(ConfigError, match="row 3: no value in column x"):
            content(table)
        (block,) = content(table, impute="median").blocks
        assert block.samples[:, 1].tolist() == [0, 0, 1, 0, 0]


def test_missing_values_are_listed_with_their_number():
    table = FRAME.assign(b=[None, *"ab" * 29, " "], label=[0.5, None, *range(58)])
    table.loc[3:5, "a"] = np.nan
    assert refused(table) == (
        "data t, row 2: no value in column label (1 such rows), a (3 such rows), b (2 such rows); fill them in or "
        "leave these rows out, or --data.drop a,b, or --data.impute median for the features"
    )


def test_truth_values_may_be_marked_as_missing():
    assert with_clean_texts(pd.Series(["TRUE", "FALSE", "NA"])).isna().tolist() == [False, False, True]
    assert not with_clean_texts(pd.Series(["yes", "no", "NA"])).isna().any()
    answers = FRAME.assign(label=["TRUE", "FALSE", "NA"] * 20)
    assert "row 3: no value in column label (20 such rows)" in refused(answers)
    assert content(FRAME.assign(b=["yes", "no", "NA"] * 20)).columns == ("a", "b=NA", "b=no", "b=yes")


@pytest.mark.parametrize("code", ["NA", "N/A", "#N/A", "nan", "null", "none", "?", "-"])
def test_texts_for_missing_values_are_asked_about_where_names_stand(code):
    for name, what in (("label", "a class"), ("user", "a user")):
        table = FRAME.assign(**{name: ["owl", "cat", code] * 20})
        assert refused(table) == (
            f"data t, row 3: {code!r} in column {name} (20 such rows): leave these rows out if a value is missing "
            f"there, or --data.categories {name} if it is {what}"
        )
        found = content(table, categories=[name])
        (block,) = found.blocks
        assert {*(block.targets if name == "label" else block.domains).tolist()} == {"owl", "cat", code}
        assert f"column {name} holds categories" in decisions(content(table, categories=[name]))


def test_a_minus_beside_a_plus_is_a_name():
    found = content(FRAME.assign(label=["+", "-"] * 30))
    assert found.targets(next(iter(found.blocks)).targets).names == ("+", "-")


@pytest.mark.parametrize("name", ["b", "label", "user"])
def test_a_row_that_sums_up_the_others_is_asked_about(name):
    table = FRAME.assign(**{name: ["owl", "cat"] * 29 + ["owl", "Total"]})
    assert refused(table) == (
        f"data t, row 60: 'Total' in column {name}, in the last row: a summary of the other rows (leave this row "
        f"out) or a row like the others (--data.categories {name})?"
    )
    content(table, categories=[name])


def test_a_total_within_the_rows_is_a_text_like_others():
    for texts in (["total", *["owl", "cat"] * 29, "owl"], ["owl", "total"] * 30):
        content(FRAME.assign(b=texts))
    files = TableRows("data t", [("a", 3), ("b", 3)])
    check_totals(files, pd.Series(["sum", "owl", "cat", "owl", "cat", "sum"], name="b"))
    with pytest.raises(ConfigError, match="data t/a, row 3: 'sum' in column b"):
        check_totals(files, pd.Series(["owl", "cat", "sum", "owl", "cat", "sum"], name="b"))


def test_truth_values_beside_bits_are_refused():
    for column in ("job", "label"):
        line = refused(FRAME.assign(**{column: ["True", "0", "False", "1"] * 15}))
        assert line == f"data t: column {column} holds 'True' and '0'; write truth values in one way"


def test_a_column_that_names_parts_is_asked_about():
    parts = FRAME.assign(split=["train", "Train", "test"] * 20)
    line = refused(parts)
    assert line.startswith("data t: column split says 'train' and 'Train' and 'test': the split to keep (bring the")
    assert "a split that is drawn anew (--data.drop split) or a feature (--data.categories split)?" in line
    assert content(parts, drop=["split"]).columns == ("a",)
    assert content(parts.assign(split=["train", "test"] * 30), categories=["split"]).columns[1] == "split=test"
    assert content(FRAME.assign(mode=["train", "bus"] * 30)).columns == ("a", "mode=bus", "mode=train")


def test_lists_that_have_the_name_of_tokens_are_asked_about_beside_other_columns():
    table = FRAME.drop(columns="a").assign(input_ids=[[1, 2, 3]] * 60, attention_mask=[[1, 1, 0]] * 60)
    assert refused(table).startswith(
        "data t: column input_ids holds lists of whole numbers, beside attention_mask: tokens, which are the sample "
        "alone (--data.drop attention_mask) or"
    )
    assert len(content(table, numbers=["input_ids"]).columns) == 6
    assert content(table.drop(columns="attention_mask")).kind is None
