"""Wrong data are caught by the check that is there for it, and right ones pass all of them."""

import re

import numpy as np
import pandas as pd
import pytest

from fedbench.checks.data import DATA_CHECKS, ReadData
from fedbench.config import Config

BY_NAME = {check.name: check for check in DATA_CHECKS}


def table(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Two measurements, and a target that depends on both and on chance."""
    draw = np.random.default_rng(seed)
    age, dose = draw.normal(50, 10, rows), draw.normal(0, 1, rows)
    ill = (age / 10 + dose + draw.normal(0, 2, rows) > 5).astype(int)
    return pd.DataFrame({"age": age, "dose": dose, "label": np.array(["well", "ill"])[ill]})


def result_of(name: str, train: pd.DataFrame, test: pd.DataFrame, **sections):
    data = ReadData(Config(data={"train": train, "test": test}, partition={"name": "iid", "clients": 3}, **sections))
    return BY_NAME[name](data)


def copies() -> tuple[str, str, pd.DataFrame, pd.DataFrame]:
    train = table()
    return "sides", "test samples of", train, pd.concat([table(60, seed=1), train[:40]])


def giveaway() -> tuple[str, str, pd.DataFrame, pd.DataFrame]:
    parts = [part.assign(code=(part["label"] == "ill").astype(float) * 3 + 1) for part in (table(), table(100, 1))]
    return "giveaways", "code alone predicts the target", *parts


def constant() -> tuple[str, str, pd.DataFrame, pd.DataFrame]:
    return "constants", "site has one value in all rows", *(part.assign(site=1.0) for part in (table(), table(100, 1)))


def unlearnt() -> tuple[str, str, pd.DataFrame, pd.DataFrame]:
    test = table(100, 1)
    test.loc[test.index[:20], "label"] = "unknown"
    return "classes", "class unknown is in the test part alone", table(), test


WRONG = [copies, giveaway, constant, unlearnt]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_wrong_data_are_caught_by_their_check(make):
    name, words, train, test = make()
    result = result_of(name, train, test)
    assert result.outcome == "failed", result
    assert words in result.line


def test_clients_that_are_too_small_are_named():
    data = ReadData(Config(data={"train": table(12), "test": table(12, 1)}, partition={"name": "iid", "clients": 12}))
    result = BY_NAME["clients"](data)
    assert result.outcome == "failed"
    assert "12 clients of 12 with fewer than 2 training samples" in result.line


def test_right_data_pass_all():
    data = {"train": table(), "test": table(100, 1)}
    results = [check(ReadData(Config(data=data, partition={"name": "iid", "clients": 3}))) for check in DATA_CHECKS]
    assert [result for result in results if result.outcome != "passed"] == []


def test_columns_of_a_table_are_near_in_their_own_units():
    """A column in the thousands hides no other one."""
    train, test = (part.assign(income=part["age"] // 10 * 1000) for part in (table(), table(100, 1)))
    assert result_of("sides", train, test).outcome == "passed"
    moved = test.assign(dose=test["dose"] + 1e-4)
    result = result_of("sides", pd.concat([train, test]), moved)
    assert "90 test samples nearly equal a training sample" in result.line  # a tenth of the others validates


def answers(rows: int, seed: int, questions: int = 4, alike: float = 0.0) -> pd.DataFrame:
    """Answers from 0 to 3, of which a share is one for all of a person's questions, and a job in texts."""
    draw = np.random.default_rng(seed)
    person = draw.integers(0, 4, rows)
    given = {
        f"question {n}": np.where(draw.random(rows) < alike, person, draw.integers(0, 4, rows)).astype(float)
        for n in range(questions)
    }
    label = np.where(sum(given.values()) + draw.normal(0, 2, rows) > 1.5 * questions, "ill", "well")
    return pd.DataFrame({**given, "job": draw.choice(["cook", "nurse", "pilot"], rows), "label": label})


@pytest.mark.parametrize("alike", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(4))
def test_equal_rows_of_few_columns_with_few_values_are_chance(seed, alike):
    result = result_of("sides", answers(400, 2 * seed, alike=alike), answers(100, 2 * seed + 1, alike=alike))
    assert result.outcome == "passed", result.line
    said, expected = (int(word) for word in re.findall(r"(\d+)(?: of 100|%)", result.line))
    assert said > 25, "by far more than may be copies"
    assert abs(said - expected) < 20
    assert result.line.endswith("% of training samples equal another")


def test_copies_beyond_chance_fail_in_such_a_table_too():
    train = answers(400, 0)
    result = result_of("sides", train, pd.concat([answers(50, 1), train[:50]]))
    assert result.outcome == "failed"
    assert re.search(r"equal a training sample \(row \d+\), and chance makes about \d\d% equal: remove", result.line)


def measured() -> pd.DataFrame:
    """One number of its own for each row, beside few values."""
    return answers(500, 0, questions=1).assign(dose=np.random.default_rng(5).normal(size=500))


@pytest.mark.parametrize("rows", [table(500), measured(), answers(500, 0, questions=24)], ids=["two", "one", "many"])
def test_rows_that_chance_cannot_make_equal_are_copies_also_where_training_has_some(rows):
    train, test = pd.concat([rows[:400], rows[:160]]), pd.concat([rows[400:], rows[:40]])
    result = result_of("sides", train, test)
    assert result.outcome == "failed"
    assert "chance" not in result.line


def test_the_digits_pass():
    results = [check(ReadData(Config(data="digits"))) for check in DATA_CHECKS]
    assert [result for result in results if result.outcome == "failed"] == []
