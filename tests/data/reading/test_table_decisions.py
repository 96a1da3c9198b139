"""The decisions on a table name every column."""

import numpy as np
import pandas as pd

from tests.data.reading.test_tables import FRAME, ROWS, content, decisions


def test_decisions_say_what_every_column_is():
    table = FRAME.assign(job=["cook", "pilot"] * 30, user=["ann", "bob"] * 30, n=1.5, id=0).rename(
        columns={"a": "Unnamed: 0"}
    )
    assert decisions(content(table, drop=["id"])) == [
        "column label is the target",
        "column user is the user",
        "column n holds numbers",
        "column job (2) holds categories",
        "column Unnamed: 0 is left out, as an index without a name",
        "column id is left out",
    ]
    (first, *_) = content(table, label="job", drop=["label"]).decisions(None)
    assert (first.about, first.how, first.key, first.value) == ("targets", "given", "data.label", "job")


def test_a_column_that_names_rows_or_groups_is_named_with_the_keys_for_it():
    shuffled = np.random.default_rng(0).permutation(ROWS) + 100
    table = FRAME.assign(id=shuffled, patient_id=np.arange(ROWS) // 4, caseId=["u", "v"] * 30, code=shuffled[::-1])
    keys = (
        "; --data.drop {0} if it is none, --data.user {0} if it is the user, --partition.test_by {0} if its rows stay"
    )
    for name in ("id", "patient_id", "caseId"):
        assert any(
            line.startswith(f"column {name} has the name of an identifier and is a feature" + keys.format(name))
            for line in content(table).warnings
        )
    assert any("column code has another whole number in every row" in line for line in content(table).warnings)
    plain = FRAME.assign(paid=shuffled // 2, valid=["u", "v"] * 30, grid=np.arange(ROWS) / 7)
    assert not any("is a feature" in line for line in content(plain).warnings)


def test_columns_that_tell_the_target_are_named():
    def lines(table: pd.DataFrame) -> list[str]:
        return [line for line in content(table).warnings if "the target alone" in line]

    rows = np.arange(ROWS)
    assert lines(FRAME.assign(code=rows % 2 + 5, ward=np.array(["a", "b", "c", "d"])[rows % 4])) == [
        "columns code, ward tell the target alone: where the value is the same, so is the target; --data.drop code if "
        "it is known only after the target"
    ]
    but_one = rows % 2 + 5
    but_one[-1] = 5
    assert not lines(FRAME.assign(code=but_one, rare=rows // 2, same=1, vector=[[1.0, 2.0]] * ROWS))
    many = np.arange(20_000)
    sorted_by_target = pd.DataFrame({"copy": np.where(many < 10_000, "no", "yes"), "label": many // 10_000})
    assert lines(sorted_by_target.assign(a=many % 1000 / 7)) == [
        "column copy tells the target alone: where the value is the same, so is the target; --data.drop copy if it is "
        "known only after the target"
    ]


def test_a_column_that_names_the_user_in_other_words_is_named():
    users = FRAME.assign(user=np.arange(ROWS) % 4, ward=[f"W{row % 4}" for row in range(ROWS)], sex=["f", "m"] * 30)
    (line,) = [line for line in content(users).warnings if "the user" in line]
    assert line.startswith("column ward names the user: each user has one value, and each another one; --data.drop w")
    assert not [line for line in content(users.drop(columns="user")).warnings if "names the user" in line]
