"""Scores of newcomers on numbers that are known."""

import math

import numpy as np
import pandas as pd
import pytest

from fedbench.results.newcomers import after_most_epochs, case_name, newcomer_curve, newcomer_summary, newcomer_table
from fedbench.results.schema import NEWCOMERS_SCHEMA
from fedbench.tasks import load

ACCURACY = load("classification").primary
ROWS = [
    *[(0, 8, 0, 0, "accuracy", 0.1, 10), (0, 9, 0, 0, "accuracy", 0.3, 30)],
    *[(0, 8, 2, 0, "accuracy", 0.5, 10), (0, 9, 2, 0, "accuracy", 0.7, 30)],
    *[(1, 8, 2, 0, "accuracy", 0.8, 10), (1, 9, 2, 0, "accuracy", 0.8, 30)],
    *[(0, 8, 2, 5, "accuracy", 0.4, 10), (0, 9, 2, 5, "accuracy", math.nan, 30)],
    *[(0, 8, 2, 0, "loss", 9.0, 10), (0, 9, 7, 0, "loss", 9.0, 30)],
]
NONE = pd.DataFrame(columns=NEWCOMERS_SCHEMA.names)


@pytest.fixture
def rows() -> pd.DataFrame:
    return pd.DataFrame(ROWS, columns=NEWCOMERS_SCHEMA.names)


def test_means_are_over_the_newcomers_of_a_seed_and_intervals_over_seeds(rows):
    table = newcomer_table(ACCURACY, {"fedavg": rows, "local": NONE})
    assert table[["method", "images", "epochs", "newcomers", "seeds"]].to_numpy().tolist() == [
        ["fedavg", 0, 0, 2, 1],
        ["fedavg", 0, 2, 2, 2],
        ["fedavg", 5, 2, 1, 1],
    ]
    assert table["mean"].tolist() == pytest.approx([0.2, 0.7, 0.4])  # of 0.6 and 0.8
    assert table["client_sd"].tolist() == pytest.approx([0.1, 0.05, 0.0])
    assert table["high"].isna().tolist() == [True, False, True]
    half = 12.7062 * 0.1  # t of one degree of freedom; Student's interval would end beyond 1
    ends = np.roots([1 + half**2 / 0.21, -(1.4 + half**2 / 0.21), 0.49])  # (x - 0.7)^2 = half^2 x (1 - x) / 0.21
    assert (table["low"][1], table["high"][1]) == pytest.approx((min(ends), max(ends)), abs=1e-4)
    assert table["sd"][1] == pytest.approx(math.sqrt(0.02))


def test_the_summary_tells_epochs_from_images(rows):
    found = newcomer_summary(ACCURACY, rows)
    assert {kind: {name: own["mean"] for name, own in cases.items()} for kind, cases in found.items()} == {
        "epochs": {"0": pytest.approx(0.2), "2": pytest.approx(0.7)},
        "images": {"5": pytest.approx(0.4)},
    }
    assert found["epochs"]["2"]["values"] == pytest.approx([0.6, 0.8])


def test_the_column_of_a_comparison_is_that_of_the_most_epochs_on_all_images(rows):
    found = after_most_epochs(ACCURACY, rows)
    assert found is not None
    assert found.values == pytest.approx((0.6, 0.8))
    assert after_most_epochs(ACCURACY, NONE) is None


def test_the_curve_is_as_shown(rows):
    curve = newcomer_curve(ACCURACY, rows)
    assert curve["epochs"].tolist() == [0, 2]
    assert curve[["mean", "min", "max"]].to_numpy().tolist() == [pytest.approx([20] * 3), pytest.approx([70, 60, 80])]


def test_names_of_cases():
    cases = [(0, 0), (1, 0), (10, 1), (10, 20)]
    assert [case_name(*case) for case in cases] == ["0 epochs", "1 epoch", "1 sample", "20 samples"]
