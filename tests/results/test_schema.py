"""A line of metrics.jsonl: keys in their order, numbers to the last bit."""

import json
import math

import pytest

from tests.results.lines import KEYS, line


def test_a_metrics_line_has_the_keys_of_the_schema_in_order() -> None:
    assert list(json.loads(line(0, 1, "after_fit", 0.5))) == KEYS


def test_floats_survive_to_the_last_bit() -> None:
    value = 0.1 + 0.2
    assert json.loads(line(0, 1, "global", value))["test_accuracy"] == value


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_becomes_null(value: float) -> None:
    assert json.loads(line(0, 1, "after_fit", 0.5, costs={"train_loss": value}))["train_loss"] is None
