"""Tables as CSV, whole and broken."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedbench.config import Config
from fedbench.data import Dataset
from tests.data import loading

ROWS = 20


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 9, ROWS),
            "job": np.array(["nurse", "cook", "pilot"])[np.arange(ROWS) % 3],
            "smokes": np.arange(ROWS) % 2 == 0,
            "user": np.array(["ann", "bob"])[np.arange(ROWS) % 2],
            "label": np.array(["well", "ill"])[np.arange(ROWS) // 2 % 2],
        }
    )


@pytest.fixture
def read(tmp_path: Path, load):
    def ask(table: pd.DataFrame, **options) -> Dataset:
        table.to_csv(tmp_path / "table.csv", index=False)
        return load(f"csv:{tmp_path / 'table.csv'}", **options)

    return ask


@pytest.fixture
def refuse(read):
    return partial(loading.refused, read)


def test_columns_can_be_named_and_left_out(read, refuse):
    dataset = read(frame().rename(columns={"label": "what", "user": "who"}), label="what", user="who", drop=["job"])
    assert (dataset.shape, dataset.domain_names) == ((2,), ("ann", "bob"))
    assert read(frame(), label="age", task="regression", drop=["user", "label"]).task == "regression"
    assert "which column holds the label? Set data.label to one of" in refuse(frame().rename(columns={"label": "what"}))
    assert "has no column 'jobs'" in refuse(frame(), drop=["jobs"])


def test_a_folder_has_a_file_for_each_part(tmp_path, load, refused):
    frame()[:12].to_csv(tmp_path / "train.csv")
    frame()[12:].to_csv(tmp_path / "test.csv")
    dataset = load(f"csv:{tmp_path}")
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (12, 8, (5,))  # pandas' own index is left out
    frame().drop(columns="age").to_csv(tmp_path / "test.csv")
    assert "have different columns: one lacks age; csv:PATH/train.csv alone is data of one part" in refused(
        f"csv:{tmp_path}"
    )
    (tmp_path / "test.csv").unlink()
    assert "nor a folder with train.csv and test.csv" in refused(f"csv:{tmp_path}")


def test_what_cannot_be_read_is_named(refuse):
    table = frame()
    table.loc[3, "age"] = np.nan
    assert refuse(table).endswith(
        "row 4: no value in column age (1 such rows); fill them in or leave these rows out, or --data.drop age, "
        "or --data.impute median"
    )
    unlabelled = frame().assign(label=[None, *"ab" * 9, "a"])
    assert refuse(unlabelled).endswith("in column label (1 such rows); fill them in or leave these rows out")
    table = frame().assign(name=[f"person {row}" for row in range(ROWS)])
    assert refuse(table.loc[table.index.repeat(3)].assign(name=[f"p{i}" for i in range(60)])).endswith(
        "column name holds 60 different texts, such as 'p0', more than the 50 of a category; turn it into numbers "
        "beforehand, or --data.drop name, or --data.categories name"
    )
    assert "no columns besides the target" in refuse(frame()[["label"]])
    assert "no rows in it" in refuse(frame()[:0])
    for hidden in (-1, -1.0):
        assert "row 1: label -1: remove such samples" in refuse(frame().assign(label=hidden))
        assert "row 3: label -1: remove such samples" in refuse(frame().assign(label=[0, 1, hidden, 1] * 5))
    assert "looks like several; separate them by commas" in refuse(pd.DataFrame({"a;label": ["1;2", "3;4"]}))


def test_rows_and_columns_of_two_files_are_found_by_name(tmp_path, load, refused):
    frame()[:12].to_csv(tmp_path / "train.csv", index=False)
    table = frame()[12:].iloc[:, ::-1]
    table.to_csv(tmp_path / "test.csv", index=False)
    assert load(f"csv:{tmp_path}").samples[12:, 0].tolist() == frame()["age"][12:].astype(np.float32).tolist()
    table.iloc[2, table.columns.get_loc("age")] = np.nan
    table.to_csv(tmp_path / "test.csv", index=False)
    assert f"{tmp_path}/test.csv, row 3: no value in column age" in refused(f"csv:{tmp_path}")


def test_both_files_have_one_type_for_each_column(tmp_path, load):
    (tmp_path / "train.csv").write_text("x,user,label\n1,7,01\n2,8,02\n3,8,01\n")
    (tmp_path / "test.csv").write_text("x,user,label\n1,7,01\n2,a,02\n3,8,x\n")
    dataset = load(f"csv:{tmp_path}")
    assert (dataset.class_names, dataset.domain_names) == (("01", "02", "x"), ("7", "8", "a"))
    assert dataset.labels.tolist() == [0, 1, 0, 0, 1, 2]
    assert dataset.samples[:, 0].tolist() == [1, 2, 3, 1, 2, 3]


def test_a_column_of_a_long_file_has_one_type(tmp_path, load):
    rows = ["1,02", "2,01"] * 150_000  # pandas guesses types for pieces of so many
    (tmp_path / "table.csv").write_text("\n".join(["x,label", *rows, *["3,x"] * 5]))
    assert load(f"csv:{tmp_path / 'table.csv'}").class_names == ("01", "02", "x")


@pytest.mark.parametrize("kind", [int, float])
def test_users_that_are_numbers_are_in_their_order(read, kind):
    dataset = read(frame().assign(user=(np.arange(ROWS) % 11).astype(kind)))
    assert dataset.domain_names == tuple(map(str, range(11)))
    assert dataset.domains[:4].tolist() == [0, 1, 2, 3]


def test_two_columns_that_could_be_the_target_or_the_user_are_asked_about(read, refuse):
    table = frame().assign(y=np.arange(ROWS) % 3, writer=np.arange(ROWS) % 2)
    assert "label and y could be the label: set data.label to one of them (and --data.drop" in refuse(
        table.drop(columns="writer")
    )
    assert "user and writer could be the user" in refuse(table, label="y")
    dataset = read(table, drop=["label", "writer"])
    assert dataset.classes == 3
    said = {decision.said for decision in dataset.decisions}
    assert {"column y is the target", "column user is the user", "columns label, writer are left out"} <= said


def test_a_name_may_be_na_and_a_number_may_be_missing(read, refuse):
    table = frame().assign(job=np.array(["NA", "None", "DE"])[np.arange(ROWS) % 3], label=["NA", "US"] * 10)
    dataset = read(table, categories=["label"])
    assert dataset.class_names == ("NA", "US")
    assert "column job (3) holds categories" in [decision.said for decision in dataset.decisions]
    table = table.assign(age=["NaN", *map(str, range(1, ROWS))])
    assert "row 1: no value in column age (1 such rows)" in refuse(table, categories=["label"])
    answers = frame().assign(smokes=["TRUE", "FALSE", "NA", "FALSE"] * 5)
    assert "row 3: no value in column smokes (5 such rows)" in refuse(answers)
    dataset = read(answers, impute="median", drop=["age", "job"])
    np.testing.assert_array_equal(dataset.samples[:4], [[1, 0], [0, 0], [np.nan, 1], [0, 0]])


def test_close_large_numbers_are_refused(refuse):
    assert "column time goes from 1700000000 to 1700000019" in refuse(
        frame().assign(time=1_700_000_000 + np.arange(ROWS))
    )


def test_another_task_is_read_anew(tmp_path, load):
    frame().assign(label=np.arange(ROWS) % 4 * 1.0).to_csv(tmp_path / "table.csv", index=False)
    tasks = ["classification", "regression"]
    assert [load(f"csv:{tmp_path / 'table.csv'}", task=task).task for task in tasks] == tasks


def test_files_of_other_programs(tmp_path, load, refused):
    file = tmp_path / "table.csv"
    file.write_text("a, b, label\n1, x, 0\n" + "2, y, 1\n" * 9)
    assert load(f"csv:{file}").class_names == ()
    file.write_bytes("a,label\nKöln,1\n".encode("latin-1"))
    assert refused(f"csv:{file}").endswith("table.csv: not a table in UTF-8; save it as text in that encoding")


def test_a_column_that_counts_the_rows_is_named(read):
    line = "column id counts the rows and is a feature; --data.drop id if it is none"
    assert line in read(frame().assign(id=np.arange(ROWS) + 1)).remarks
    assert line not in read(frame().assign(id=np.arange(ROWS)[::-1], even=np.arange(ROWS) % 2 == 0)).remarks


def lines(file: Path, head: str, *rows: str) -> str:
    file.write_text("\n".join([head, *rows]) + "\n")
    return f"csv:{file}"


def test_rows_with_more_values_than_names_are_refused(tmp_path, load, refused):
    file, rows = tmp_path / "t.csv", [f"{row / 8},{row % 3},{row % 2}" for row in range(12)]
    for end, line in (
        (",7", "4 values in the first row, and 3"),
        (",", "4 values in every row (a comma at the end), and 3"),
    ):
        assert line in refused(lines(file, "a,b,y", *(row + end for row in rows)))
    assert "4 values in line 6, and 3 names" in refused(lines(file, "a,b,y", *rows[:4], rows[4] + ",1", *rows[5:]))
    for named in ([f"r{n},{row}" for n, row in enumerate(rows)], [f"{n + 1},{row}" for n, row in enumerate(rows)]):
        assert load(lines(file, "a,b,y", *named)).samples.tolist() == [[row / 8, row % 3] for row in range(12)]
    assert "4 values in the first row" in refused(
        lines(file, "a,b,y", *(f"{n + 2},{row}" for n, row in enumerate(rows)))
    )
    assert "no value in column y (1 such rows)" in refused(lines(file, "a,b,y", *rows, "1,2"))


@pytest.mark.parametrize("first", ["# exported by the lab", "sep=,"])
def test_a_first_line_without_names_is_named(tmp_path, refused, first):
    line = refused(lines(tmp_path / "t.csv", first, "a,b,y", "1,2,0", "2,3,1"))
    assert line == f"{tmp_path / 't.csv'}: the first line, {first!r}, is no line of names; delete it"


def test_names_that_are_numbers_number_the_columns(tmp_path, load, refused):
    rows = [f"{row},{row % 5},{row % 3},{row % 2}" for row in range(9)]
    line = "the first line holds numbers; write a line with the names of the columns above it"
    for numbers in ("6,148,72,1", "5.1,3.5,0.2,setosa"):
        assert line in refused(lines(tmp_path / "t.csv", numbers, *rows))
    for names in ("0,1,2,label", "1,2,3,label"):
        assert load(lines(tmp_path / "t.csv", names, *rows)).shape == (3,)


def test_names_have_no_blanks_and_are_different(tmp_path, load, refused):
    assert refused(lines(tmp_path / "t.csv", "a, a,y", "1,2,0", "2,3,1")).endswith(
        "two columns are called a; rename one"
    )
    assert load(lines(tmp_path / "t.csv", " a ,user , y", "1,ann,0", "2, ann ,1")).domain_names == ("ann",)


def test_one_number_written_in_several_ways_is_asked_about(tmp_path, load, refused):
    rows = [f"{row / 7},{['1.10', '1.1', '2'][row % 3]}" for row in range(60)]
    assert refused(lines(tmp_path / "t.csv", "a,y", *rows)).endswith(
        "column y writes one number in several ways, such as '1.10': classes by their texts (--task classification) or "
        "numbers (--task regression)?"
    )
    assert load(lines(tmp_path / "t.csv", "a,y", *(f"{row},{row / 8}" for row in range(60)))).task == "regression"


def test_groups_are_texts_and_places_in_time_are_numbers(tmp_path):
    rows = [f"{row / 7},{['1e3', '1000'][row % 2]},{10 - row},{row % 2}" for row in range(10)]
    name = lines(tmp_path / "t.csv", "a,patient,day,y", *rows)
    found = Dataset.of_run(Config(data=name, partition={"name": "iid", "test_by": "patient"}))
    assert found.groups.tolist() == [0, 1] * 5
    found = Dataset.of_run(
        Config(data={"name": name, "drop": ["patient"]}, partition={"test": "last", "order_by": "day"})
    )
    assert found.order.tolist() == [*range(9, -1, -1)]


def test_a_folder_may_have_a_file_for_validation(tmp_path, load):
    for part, rows in (("train", slice(0, 12)), ("val", slice(12, 15)), ("test", slice(15, ROWS))):
        frame().iloc[rows].to_csv(tmp_path / f"{part}.csv", index=False)
    found = load(f"csv:{tmp_path}")
    assert (found.train_rows, found.val_rows, found.test_rows) == (15, 3, 5)


def test_names_of_columns_that_stand_there_again_are_refused(tmp_path, refused):
    table = frame().to_csv(index=False)
    (tmp_path / "joined.csv").write_text(table + table)
    line = refused(f"csv:{tmp_path / 'joined.csv'}")
    assert line.endswith(f"joined.csv: row {ROWS + 1} repeats the names of the columns (1 such rows); delete it")


@pytest.mark.parametrize(
    ("row", "column", "cell"),
    [
        ('{}, "b{}",{}', "b", ' "b0"'),
        ("{},'b{}' ,{}", "b", "'b0' "),
        ('{},2.5, "l{}"', "y", ' "l0"'),
        ('{}, "{}", {}', "b", ' "0"'),
    ],
)
def test_quotes_do_not_become_part_of_cells(tmp_path, refused, row, column, cell):
    name = lines(tmp_path / "t.csv", "a,b,y", *(row.format(n / 8, n % 2, n % 2) for n in range(12)))
    what = "the blanks before quotes" if cell[0] == " " else "the quotes"
    assert refused(name) == (
        f"{tmp_path / 't.csv'}: column {column} holds texts in quotes, such as {cell!r}; leave out {what}, or set "
        f"--data.categories {column} if they belong to them, or --data.drop {column}"
    )


def test_quotes_may_stay_in_columns_that_are_categories_or_dropped(tmp_path, load):
    name = lines(tmp_path / "t.csv", "a,b,y", *(f"{n / 8},'b{n % 2}',{n % 2}" for n in range(12)))
    assert load(name, drop=["b"]).shape == (1,)
    assert load(name, categories=["b"]).shape == (3,)


def test_quotes_within_texts_and_around_some_of_them_are_read(tmp_path, load):
    texts = ["'x'", "y", ' "z" a', "it's 'z'", '"""w"""'] * 4
    name = lines(tmp_path / "t.csv", "a,b,y", *(f"{n / 8},{text},{n % 2}" for n, text in enumerate(texts)))
    assert load(name).shape == (6,)
