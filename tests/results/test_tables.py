"""The final table: every method at both points, at the last round and the best round."""

import math

import pandas as pd
import pytest

from fedbench.results.schema import COSTS, score_keys
from fedbench.results.tables import as_text, difference, final_table
from fedbench.tasks import load

TASK = load("classification")
ACCURACY, ERROR = TASK.primary, load("regression").primary
METRICS = ["seed", "round", "point", *score_keys(TASK), *COSTS, "failed"]
TESTS = {"fedcac": {0: [0.6, 0.9, 0.8], 1: [0.5, 0.6, 0.7]}, "local": {0: [0.5, 0.6, 0.7], 1: [0.5, 0.55, 0.6]}}
VALS = {0: [0.1, 0.2, 0.1], 1: [0.1, 0.2, 0.3]}


def metrics(tests: dict[int, list[float]], points: tuple[str, ...] = ("after_fit", "after_agg")) -> pd.DataFrame:
    rows = [
        {
            "seed": s,
            "round": r,
            "point": p,
            "test_accuracy": v,
            "val_accuracy": VALS[s][r - 1],
            "test_worst_tenth": v / 2,
        }
        for s, values in tests.items()
        for r, v in enumerate(values, 1)
        for p in points
    ]
    return pd.DataFrame(rows, columns=METRICS)


def clients(tests: dict[int, list[float]]) -> pd.DataFrame:
    rows = [
        {"seed": s, "round": r, "point": p, "client": c, "test_accuracy": v + d, "test_n": 10 + 20 * c}
        for s, values in tests.items()
        for r, v in enumerate(values, 1)
        for p in ("after_fit", "after_agg")
        for c, d in ((0, -0.05), (1, 0.05))
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def table() -> pd.DataFrame:
    frames = {m: metrics(t) for m, t in TESTS.items()}
    return final_table(ACCURACY, frames, {m: clients(t) for m, t in TESTS.items()})


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


def batched(**estimators: str) -> pd.DataFrame:
    frames = {m: metrics(t) for m, t in TESTS.items()}
    own = {m: clients(t).assign(test_n=math.nan if m in estimators else 10) for m, t in TESTS.items()}
    return final_table(ACCURACY, frames, own, estimators=estimators)


def test_a_table_over_batches_says_so_and_has_no_pooled_score() -> None:
    table = batched(fedcac="batches of 32", local="batches of 32")
    assert set(table["estimator"]) == {"batches of 32"}
    assert table["pooled"].isna().all()
    text = as_text(table, ACCURACY)
    assert text.endswith("; accuracy as mean over batches of 32")
    assert "pooled " not in text.splitlines()[0]


def test_rows_of_different_estimators_are_marked() -> None:
    text = as_text(batched(fedcac="batches of 32"), ACCURACY).splitlines()
    assert text[2].startswith("fedcac (mean over batches of 32)  after_fit")
    assert text[4].startswith("local (mean over samples)  ")
    assert "cannot be compared across marks" in text[-1]


def test_gain_over_local_is_paired(table: pd.DataFrame) -> None:
    found = row(table, "fedcac", "last", "after_fit")
    assert (found["gain"], found["share_gains"]) == pytest.approx((0.1, 1.0))
    assert found["gain_low"] == pytest.approx(0.1)
    assert math.isnan(row(table, "local", "last")["gain"])


def test_without_validation_there_is_no_best_val_row() -> None:
    table = final_table(ACCURACY, {"local": metrics(TESTS["local"]).assign(val_accuracy=math.nan)})
    assert set(table["choice"]) == {"last", "best_test"}


def test_no_difference_without_the_other_method() -> None:
    frames = {"fedcac": metrics(TESTS["fedcac"])}
    assert difference(ACCURACY, "fedcac", "local", "after_agg", frames, {"fedcac": clients(TESTS["fedcac"])}) is None


def test_a_baseline_without_the_point_lends_its_other_one() -> None:
    frames = {"fedcac": metrics(TESTS["fedcac"]), "local": metrics(TESTS["local"], ("after_agg",))}
    gap = difference(ACCURACY, "fedcac", "local", "after_fit", frames, {m: clients(t) for m, t in TESTS.items()})
    assert gap.mean == pytest.approx(0.1)


def test_text_is_aligned_and_in_percent(table: pd.DataFrame) -> None:
    lines = as_text(table, ACCURACY).splitlines()
    assert "fedcac" in lines[2]
    assert "75.0 +- 63.5" in lines[2]
    assert "+10.0" in lines[2]
    assert len({len(text) for text in lines[:4]}) == 1
    assert "optimistic" in lines[-1]


def test_columns_without_numbers_are_absent_from_the_text() -> None:
    text = as_text(final_table(ACCURACY, {"local": metrics(TESTS["local"]).assign(val_accuracy=math.nan)}), ACCURACY)
    assert "best-val" not in text
    assert "over local" not in text


def test_nothing_evaluated_is_an_empty_table() -> None:
    assert final_table(ACCURACY, {"local": metrics({})}).empty
    assert "method" in as_text(final_table(ACCURACY, {}), ACCURACY)


def test_where_less_is_better_the_best_round_is_the_lowest_and_a_gain_is_a_smaller_error() -> None:
    renamed = lambda frame: frame.rename(columns=lambda name: name.replace("accuracy", "mse"))  # noqa: E731
    frames = {m: renamed(metrics(t)) for m, t in TESTS.items()}
    table = final_table(ERROR, frames, {m: renamed(clients(t)) for m, t in TESTS.items()})
    assert row(table, "fedcac", "best_test")["mean"] == pytest.approx(0.55)
    assert row(table, "fedcac", "best_val")["round"] == 1
    assert row(table, "fedcac", "last", "after_fit")["gain"] == pytest.approx(-0.1)
    assert row(table, "fedcac", "last", "after_fit")["share_gains"] == 0
    text = as_text(table, ERROR)
    assert "0.75 +- 0.635" in text
    assert "-0.1" in text
    assert "test mean squared error, mean over clients" in text
