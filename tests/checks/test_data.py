"""Wrong data are caught by the check that is there for it, and right ones pass all of them."""

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


def test_the_digits_pass():
    results = [check(ReadData(Config(data="digits"))) for check in DATA_CHECKS]
    assert [result for result in results if result.outcome == "failed"] == []
