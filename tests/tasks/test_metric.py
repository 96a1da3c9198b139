"""What metrics look like, and in which direction they count."""

import pytest

from fedbench.tasks import Metric

SHARE, ERROR = Metric("accuracy", "accuracy", share=True), Metric("mse", "mean squared error", higher=False)


def test_shares_are_shown_in_percent_and_other_numbers_with_three_digits():
    assert (SHARE.with_unit(0.8421), SHARE.number(0.8421), SHARE.title) == ("84.2\u00a0%", "84.2", "accuracy, %")
    assert (ERROR.with_unit(0.57349), ERROR.number(12345.0), ERROR.title) == ("0.573", "1.23e+04", "mean squared error")


def test_differences_have_a_sign():
    assert (SHARE.difference(0.034), SHARE.difference(-0.034)) == ("+3.4", "\u22123.4")
    assert SHARE.difference(-0.0001) == "+0.0"
    assert ERROR.difference(-0.0123) == "\u22120.0123"


def test_a_gain_is_above_zero_where_ours_is_better():
    assert SHARE.gain(0.8, 0.7) == pytest.approx(0.1)
    assert ERROR.gain(0.5, 0.7) == pytest.approx(0.2)
