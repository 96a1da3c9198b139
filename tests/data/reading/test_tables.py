"""Tables of any origin."""

from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pytest

from fedbench.data.reading.cells import TableRows
from fedbench.data.reading.table_columns import TableOptions
from fedbench.data.reading.tables import TableReader, join_parts
from fedbench.errors import ConfigError
from tests.data import loading


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


def test_python_numbers_are_numbers():
    cells = {"x": [Decimal(row) / 4 for row in range(5)], "n": [*range(5)], "y": [0, 1, 0, 1, 0]}
    found = content(pd.DataFrame(cells, dtype=object), label="y")
    np.testing.assert_array_equal(next(iter(found.blocks)).samples[:2], [[0, 0], [0.25, 1]])
    assert found.columns == ("x", "n")
    with pytest.raises(ConfigError, match="row 3: no value in column x"):
        content(
            pd.DataFrame(cells, dtype=object).assign(x=[Decimal(1), Decimal(2), None, Decimal(4), Decimal(5)]),
            label="y",
        )


refused = partial(loading.refused, content)


def decisions(found) -> list[str]:
    return [decision.said for decision in found.decisions(found.targets(next(iter(found.blocks)).targets))]


ROWS = 60
FRAME = pd.DataFrame({"a": np.arange(ROWS) / 7, "label": np.arange(ROWS) % 2})


def test_numbers_written_as_text_and_codes_are_asked_about():
    texts = FRAME.assign(n=[str(row % 9) for row in range(ROWS)])
    assert refused(texts) == (
        "data t: column n holds numbers written as text, such as '0': numbers (--data.numbers n) or 9 categories "
        "(--data.categories n)?"
    )
    (block,) = content(texts, numbers=["n"]).blocks
    assert block.samples[:, 1].tolist() == [row % 9 for row in range(ROWS)]
    assert content(texts, categories=["n"]).columns == ("a", *(f"n={value}" for value in range(9)))
    codes = FRAME.assign(n=[f"{row:05}" for row in range(ROWS)])
    assert "column n holds digits with a zero in front, such as '00000': numbers (--data.numbers n) or 60" in refused(
        codes
    )
    assert (
        "holds numbers with a unit, such as '0 kg'; write the numbers alone, or --data.drop n, or --data.cat"
        in refused(FRAME.assign(n=[f"{row % 3} kg" for row in range(ROWS)]))
    )
    assert "'?' in column n, which holds numbers otherwise (20 such rows)" in refused(
        FRAME.assign(n=[str(row) if row % 3 else "?" for row in range(ROWS)])
    )


@pytest.mark.parametrize("name", ["zip", "ICD_9", "ward_code", "postalCode"])
@pytest.mark.parametrize("kind", [int, float, str])
def test_numbers_of_a_column_with_the_name_of_codes_are_asked_about(name, kind):
    coded = FRAME.assign(**{name: [kind(10_000 + row % 3) for row in range(ROWS)]})
    line = f"data t: column {name} has the name of codes and holds numbers: numbers (--data.numbers {name}) or 3 cat"
    assert refused(coded).startswith(line)
    assert content(coded, numbers=[name]).columns == ("a", name)
    assert len(content(coded, categories=[name]).columns) == 4
    assert content(coded, drop=[name]).columns == ("a",)


def test_two_codes_and_names_that_only_look_like_one_are_numbers():
    rows = np.arange(ROWS)
    plain = FRAME.assign(code=rows % 2, barcode=rows, unicode=rows % 3, latent_code=rows % 5 / 2, other_code=rows + 7)
    assert content(plain).columns == ("a", "code", "barcode", "unicode", "latent_code", "other_code")


@pytest.mark.parametrize("different", [9, ROWS])
def test_amounts_are_named_by_their_form_however_many_there_are(different):
    amounts = FRAME.assign(n=[f"${1 + row % different},250.00" for row in range(ROWS)])
    line = "column n holds numbers with a unit, such as '$1,250.00'; write the numbers alone, or --data.drop n"
    assert line in refused(amounts)
    assert "the targets are numbers with a unit, such as '$1,250.00': set --task classification" in refused_target(
        amounts.n
    )
    assert content(amounts, categories=["n"]).columns[1] == "n=$1,250.00"


def test_texts_that_hardly_repeat_are_no_categories():
    table = FRAME.assign(dose=[f"{row % 31}±2" for row in range(ROWS)])
    assert refused(table) == (
        "data t: column dose holds 31 different texts, such as '0±2', in 60 rows; turn it into numbers beforehand, or "
        "--data.drop dose, or --data.categories dose"
    )
    assert len(content(table, categories=["dose"]).columns) == 32
    assert len(content(FRAME.assign(dose=[f"{row % 30}±2" for row in range(ROWS)])).columns) == 31
    assert len(content(table.astype({"dose": "category"})).columns) == 32


def test_points_that_may_separate_thousands_are_asked_about():
    def of_csv(values, label=("0", "1"), **options):
        table = FRAME.assign(a=np.resize(values, ROWS), label=np.resize(label, ROWS))
        reader = TableReader(TableOptions(**options), "auto", typed=False)
        return reader.content(TableRows("data t", [("t", ROWS)]), table, {"train": ROWS})

    assert loading.refused(of_csv, ["700", "2.345", "1.500"]) == (
        "data t: column a holds '1.500' beside '700': decimals (--data.numbers a) or thousands (write them without "
        "points)?"
    )
    (block,) = of_csv(["700", "2.345", "1.500"], numbers=["a"]).blocks
    assert block.samples[:3, 0].tolist() == np.float32([700, 2.345, 1.5]).tolist()
    for values in (["700.000", "1.500"], ["700", "1.525"], ["700", "0.500"], ["700", "1.5"], ["700", "1234.500"]):
        of_csv(values)
    with pytest.raises(ConfigError, match=r"column label holds '1\.500' beside '700'"):
        of_csv(["0.5"], label=["700", "1.500", "1.525"])


@pytest.mark.parametrize("number", [-99, 999, -9999.0])
def test_numbers_that_usually_stand_for_missing_values_are_asked_about_far_from_all_others(number):
    rows = np.arange(ROWS)
    ages = rows % 40 / 2 + 30
    table = FRAME.assign(a=np.where(rows % 20 == 7, number, ages), b=np.where(rows < 2, -999, rows % 7))
    assert refused(table) == (
        f"data t: column a holds {number:g} in 3 rows, and 30 to 49.5 otherwise, column b holds -999 in 2 rows, and 0 "
        "to 6 otherwise: a number (--data.numbers a,b) or a missing value (empty these cells, with --data.impute "
        "median)?"
    )
    content(table, numbers=["a", "b"])
    near = np.where(rows % 20 == 7, number, ages * 1000 - 35000)
    for values in (near, np.where(rows % 2, number, 0), np.where(rows == 7, number, ages)):
        content(FRAME.assign(a=values))


def refused_target(values) -> str:
    table = FRAME.assign(label=values)
    with pytest.raises(ConfigError) as caught:
        decisions(content(table))
    return str(caught.value)


def test_columns_that_are_declared_as_categories_are_categories():
    found = content(FRAME.assign(n=pd.Categorical([str(row % 3) for row in range(ROWS)])))
    assert found.columns == ("a", "n=0", "n=1", "n=2")


def test_numbers_can_be_categories_and_codes_be_numbers():
    codes = FRAME.assign(floor=np.arange(ROWS) % 4)
    assert content(codes, categories=["floor"]).columns == ("a", *(f"floor={value}" for value in range(4)))
    assert content(codes, numbers=["floor"]).numbers == ("floor",)
    assert refused(codes, numbers=["flor"]) == "data.numbers: data t has no column 'flor'; did you mean floor?"
    assert refused(codes.assign(floor=["a", "b"] * 30), numbers=["floor"]) == (
        "data.numbers: data t: column floor holds texts, such as 'a'"
    )
    assert "column floor is in both" in refused(codes, numbers=["floor"], categories=["floor"])


def test_texts_that_differ_in_case_alone_are_asked_about_and_blanks_are_none():
    answers = FRAME.assign(label=["yes", " yes", "no", "No"] * 15)
    assert refused(answers) == (
        "data t: column label: 'no' and 'No' differ in case or blanks alone: one (--data.spelling merged) or two "
        "(--data.spelling exact)?"
    )
    for spelling, names in (("merged", ("no", "yes")), ("exact", ("No", "no", "yes"))):
        found = content(answers, spelling=spelling)
        assert found.targets(next(iter(found.blocks)).targets).names == names
    assert "column user: 'ann' and 'Ann' differ" in refused(FRAME.assign(user=["ann", "Ann", "ann"] * 20))
    assert "column job: 'cook' and 'Cook' differ" in refused(FRAME.assign(job=["cook", "Cook", "cook"] * 20))


def test_values_that_only_the_test_part_has_are_named():
    table = FRAME.assign(job=["cook"] * 50 + ["pilot"] * 10, friday=[0] * 50 + [1] * 10)
    line = "3 features have one value in the training part and others in the test part: job=cook, job=pilot, friday"
    assert line in content(table, {"train": 50, "test": 10}).warnings
    assert not any("one value" in line for line in content(table).warnings)


def test_users_that_are_bytes_are_refused():
    table = pd.DataFrame({"x": np.arange(4.0), "user": [b"a", b"b"] * 2, "y": [0, 1, 1, 0]})
    with pytest.raises(ConfigError, match="column user holds bytes; turn the column into numbers or text beforehand"):
        content(table)


def test_categories_of_numbers_stay_categories_in_every_part():
    parts = [pd.DataFrame({"k": pd.Categorical(values), "y": [0, 1]}) for values in ([10, 20], [30, 20])]
    rows, whole = join_parts("data t", [("train", parts[0]), ("test", parts[1])])
    read = TableReader(TableOptions(), "auto").content(rows, whole, {"train": 2, "test": 2})
    assert read.columns == ("k=10", "k=20", "k=30")
    (block,) = read.blocks
    assert block.samples.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    (block,) = content(whole, numbers=["k"]).blocks
    assert block.samples.tolist() == [[10], [20], [30], [20]]


@pytest.mark.filterwarnings("error")
def test_numbers_too_large_for_float32_are_named_and_infinite_ones_as_before():
    large = FRAME.assign(a=[1e300 * (1 + row) for row in range(ROWS)])
    assert refused(large) == "data t, row 1: a value too large for float32 in column a; scale the column"
    assert "row 1: a value that is not finite in column a; fill it in" in refused(FRAME.assign(a=np.inf))


def test_a_name_with_a_comma_stands_in_brackets():
    line = refused(FRAME.assign(**{"Height, cm": 1.5}), drop=["Height", "cm"])
    assert line.endswith(
        "has no column 'Height'; a name with a comma stands in brackets and quotes: --data.drop '[\"Height, cm\"]'"
    )
