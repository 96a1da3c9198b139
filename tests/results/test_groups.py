"""Classes and domains: pooled over the samples of a group, then over seeds."""

import pandas as pd
import pytest

from fedbench.results.groups import group_table
from fedbench.tasks import load
from tests.results.test_tables import metrics

ACCURACY = load("classification").primary
COLUMNS = ["seed", "round", "client", "point", "by", "group", "value", "n"]


def rows(found: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame(found, columns=COLUMNS)


def table(found: list[tuple]) -> pd.DataFrame:
    return group_table(ACCURACY, {"fedper": metrics({0: [0.5, 0.6], 1: [0.5, 0.6]})}, {"fedper": rows(found)})


def test_clients_are_pooled_within_a_seed_at_the_last_round():
    at = ("after_agg", "domain", "photo")
    found = table([(0, 1, 0, *at, 0.0, 10), (0, 2, 0, *at, 0.5, 10), (0, 2, 1, *at, 1.0, 30), (1, 2, 1, *at, 0.75, 8)])
    assert len(found) == 1
    row = found.iloc[0]
    assert (row["method"], row["point"], row["by"], row["group"], row["seeds"]) == ("fedper", *at, 2)
    assert row["mean"] == pytest.approx((35 / 40 + 0.75) / 2)
    assert row["client_mean"] == 0.75
    assert row["sd"] == pytest.approx((35 / 40 - 0.75) / 2**0.5)
    assert (row["samples"], row["clients"]) == (24, 1.5)


def test_classes_come_in_the_order_of_their_numbers_and_one_seed_has_no_interval():
    found = table([(0, 2, 0, "after_fit", "class", str(c), 0.5, 4) for c in (10, 9, 2)])
    assert found["group"].tolist() == ["2", "9", "10"]
    assert found[["sd", "low", "high"]].isna().all(axis=None)


def test_classes_have_the_names_of_the_data_and_domains_their_own():
    found = [(0, 2, 0, "after_fit", "class", "1", 0.5, 4), (0, 2, 0, "after_fit", "domain", "1", 0.5, 4)]
    one = {"fedper": metrics({0: [0.5, 0.6], 1: [0.5, 0.6]})}
    named = group_table(ACCURACY, one, {"fedper": rows(found)}, ["benign", "malignant"])
    assert named["group"].tolist() == ["1", "1"]
    assert named["name"].tolist() == ["malignant", "1"]
    assert table(found)["name"].tolist() == ["1", "1"]


def test_nothing_recorded_is_an_empty_table():
    assert table([]).empty


def test_perplexities_are_pooled_by_their_logarithms():
    perplexity = load("next-token").primary
    at = ("after_agg", "domain", "letters")
    frame = rows([(0, 2, 0, *at, 2.0, 50), (0, 2, 1, *at, 8.0, 50)])
    lines = metrics({0: [0.5, 0.6]}).rename(columns=lambda name: name.replace("accuracy", "perplexity"))
    (mean,) = group_table(perplexity, {"fedper": lines}, {"fedper": frame})["mean"]
    assert mean == pytest.approx(4.0)
