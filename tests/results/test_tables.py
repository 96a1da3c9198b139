"""The final table: every method at both points, at the last round and the best round."""

import math

import pandas as pd
import pytest

from fedbench.results.tables import FinalScores, final_table
from tests.results.tabled import ACCURACY, TESTS, both, clients, metrics, of_errors, unvalidated


@pytest.fixture
def table() -> pd.DataFrame:
    return both()


def row(table: pd.DataFrame, method: str, choice: str, point: str = "after_agg") -> pd.Series:
    found = table[(table["method"] == method) & (table["choice"] == choice) & (table["point"] == point)]
    assert len(found) == 1
    return found.iloc[0]


def test_last_round_best_val_round_and_best_test_round(table: pd.DataFrame) -> None:
    assert row(table, "fedcac", "last")["mean"] == pytest.approx(0.75)
    assert row(table, "fedcac", "best_val")["mean"] == pytest.approx(0.8)
    assert row(table, "fedcac", "best_val")["round"] == 2.5
    assert row(table, "local", "best_val")["mean"] == pytest.approx(0.6)
    assert row(table, "fedcac", "best_test")["mean"] == pytest.approx(0.8)


def test_worst_tenth_belongs_to_the_chosen_round(table: pd.DataFrame) -> None:
    assert row(table, "fedcac", "best_val")["worst_tenth"] == pytest.approx(0.4)


def test_pooled_weighs_clients_by_their_test_samples_and_sd_is_over_seeds(table: pd.DataFrame) -> None:
    found = row(table, "fedcac", "last")
    assert found["pooled"] == pytest.approx(0.75 + (30 * 0.05 - 10 * 0.05) / 40)
    assert found["sd"] == pytest.approx(0.1 / 2**0.5)


def test_a_table_over_batches_has_no_pooled_score() -> None:
    table = both(fedcac="batches of 32", local="batches of 32")
    assert set(table["estimator"]) == {"batches of 32"}
    assert table["pooled"].isna().all()


def test_gain_over_local_is_paired(table: pd.DataFrame) -> None:
    found = row(table, "fedcac", "last", "after_fit")
    assert (found["gain"], found["share_gains"]) == pytest.approx((0.1, 1.0))
    assert found["gain_low"] == pytest.approx(0.1)
    assert math.isnan(row(table, "local", "last")["gain"])


def test_without_validation_there_is_no_best_val_row() -> None:
    assert set(unvalidated()["choice"]) == {"last", "best_test"}


def test_no_difference_without_the_other_method() -> None:
    frames = {"fedcac": metrics(TESTS["fedcac"])}
    scores = FinalScores.of(ACCURACY, frames, {"fedcac": clients(TESTS["fedcac"])})
    assert scores.difference("fedcac", "local", "after_agg") is None


def test_a_baseline_without_the_point_lends_its_other_one() -> None:
    frames = {"fedcac": metrics(TESTS["fedcac"]), "local": metrics(TESTS["local"], ("after_agg",))}
    scores = FinalScores.of(ACCURACY, frames, {m: clients(t) for m, t in TESTS.items()})
    assert scores.difference("fedcac", "local", "after_fit").mean == pytest.approx(0.1)


def test_nothing_evaluated_is_an_empty_table() -> None:
    assert final_table(FinalScores.of(ACCURACY, {"local": metrics({})})).empty


def test_where_less_is_better_the_best_round_is_the_lowest_and_a_gain_is_a_smaller_error() -> None:
    table = of_errors()
    assert row(table, "fedcac", "best_test")["mean"] == pytest.approx(0.55)
    assert row(table, "fedcac", "best_val")["round"] == 1
    assert row(table, "fedcac", "last", "after_fit")["gain"] == pytest.approx(-0.1)
    assert row(table, "fedcac", "last", "after_fit")["share_gains"] == 0
