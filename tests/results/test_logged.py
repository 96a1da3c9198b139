"""Records as curves: the same names for every method and seed, and axes of what was spent."""

import pytest

from fedbench.results.logged import CumulativeCosts, metric_values, rows_by_round, trace_distributions, trace_values
from tests.tracking.wandb_files import line, lines, traces


def test_lines_become_one_key_per_point_and_metric():
    values = metric_values(lines(1))
    assert values["after_fit/test_accuracy"] == 0.6
    assert values["after_agg/test_accuracy"] == 0.5
    assert values["after_agg/failed"] == 1
    assert "after_agg/val_accuracy" not in values


def test_few_clients_become_curves_and_many_become_quantiles():
    assert list(trace_values(traces(1, clients=2))) == ["lambda/client_00", "lambda/client_01"]
    many = trace_values(traces(1, clients=60))
    assert list(many) == ["lambda/min", "lambda/p10", "lambda/median", "lambda/p90", "lambda/max"]
    assert many["lambda/median"] == pytest.approx(1.0295)
    assert trace_distributions(traces(1, clients=60))["lambda/histogram"].shape == (60,)
    assert trace_distributions(traces(1, clients=2))["lambda/histogram"].tolist() == [1.0, 1.001]


def test_named_parts_are_means_over_clients_and_a_server_trace_stays():
    assert trace_values(traces(1, clients=3, name="critical_share/fc")) == {"critical_share/fc": pytest.approx(1.001)}
    server = [{"seed": 0, "round": 1, "client": -1, "name": "margin", "value": 0.2}]
    assert trace_values(server) == {"margin": 0.2}
    assert trace_distributions([*server, *traces(1, name="critical_share/fc")]) == {}


def test_what_was_spent_is_summed_over_rounds_and_a_round_told_again_counts_once():
    spent = CumulativeCosts()
    for number in (1, 2, 2, 3):
        spent.note(number, lines(number))
    assert [spent.until(number) for number in (1, 2, 3)] == [{"bytes": 8 * n, "steps": 5 * n} for n in (1, 2, 3)]


def test_a_line_stands_for_the_rounds_since_the_line_before():
    spent = CumulativeCosts()
    for number in (0, 5, 10):
        spent.note(number, [line(0, number, "after_fit", 0.5, costs=dict(steps=number, bytes_up=1, bytes_down=2))])
    assert spent.until(0) == {"bytes": 0, "steps": 0}
    assert spent.until(10) == {"bytes": 30, "steps": 5 * 5 + 5 * 10}


def test_rows_are_handed_over_by_ascending_round():
    assert list(rows_by_round([*lines(2), *lines(1)])) == [1, 2]
    assert rows_by_round(lines(1))[7] == []
