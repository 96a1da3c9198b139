"""Numbers read from made-up records."""

import numpy as np
import pytest

from fedbench_papers.claims import readings
from tests.papers.claims.made import frames, level


def of(series) -> list[float]:
    return series.groupby("seed").mean().round(6).tolist()


def test_accuracy_is_in_points_at_both_places():
    runs = frames(agg={0: [0.5, 0.7], 1: [0.2, 0.4]}, fit=level(0.9, 0.8))
    assert of(readings.accuracy(runs, "agg")) == [60, 30]
    assert of(readings.accuracy(runs, "fit")) == [90, 80]


def test_only_the_seeds_that_are_asked_for():
    assert of(readings.accuracy(frames([1], agg=level(0.5, 0.75)), "agg")) == [75]


def test_a_pooled_mean_weighs_clients_by_their_test_samples():
    runs = frames(agg={0: [1.0, 0.0]}, sizes=(30, 10))
    assert of(readings.pooled_accuracy(runs, "agg")) == [75]


def test_batches_of_classes_in_their_order_weigh_the_end_more():
    runs = frames(agg={0: [0.75, 0.75]}, sizes=(200, 128), classes={0: [[0.5, 1.0], [0.5, 1.0]]})
    weight = (28 / 32 + 2 + 1) / 7  # of the second class in 7 batches, the last of which is 8 images of it
    first, second = readings.batch_gap(runs, "agg", 32).tolist()
    assert first == pytest.approx(100 * ((1 - weight) * 0.5 + weight - 0.75))
    assert second == pytest.approx(0), "whole batches"


def test_decline_and_area():
    runs = frames(agg=level(0.3), curves={0: [0.1, 0.5, 0.7, 0.3]})
    assert of(readings.decline(runs, "agg", window=2)) == [pytest.approx(10)]
    assert of(readings.over_rounds(runs, "agg", every=2)) == [40]
    assert of(readings.over_rounds(runs, "agg", every=3)) == [50], "the last round, too"
    assert of(readings.over_rounds(runs, "agg", every=9)) == [30]


def test_losses_of_training():
    runs = frames(agg=level(0.3), curves={0: [0.1] * 3}, losses={0: [4.0, 1.0, np.e]})
    assert of(readings.log_loss(runs, "fit", last=2)) == [0.5]
    assert of(readings.roughness(runs, "fit")) == [round((3 + np.e - 1) / 2, 6)]


TRACES = [(0, t, c, "x", t + 10 * c) for t in (1, 2, 3) for c in (0, 1)] + [(0, t, 0, "y", -t) for t in (1, 2, 3)]


def test_traces():
    runs = frames(agg=level(0.5), traces=TRACES)
    assert of(readings.traced(runs, "agg", "x")) == [8]
    assert of(readings.traced(runs, "agg", "x", rounds=[1])) == [6]
    assert of(readings.spread_of(runs, "agg", "x")) == [10]
    assert of(readings.trend(runs, "agg", "x")) == [1]
    assert of(readings.trend(runs, "agg", "y")) == [-1]


def test_log_ratio_of_numbered_traces():
    rows = [(0, 1, 0, f"s/{label}", value) for label, value in enumerate([8.0, 8.0, 2.0, 2.0])]
    runs = frames(agg=level(0.5), traces=[*rows, (0, 2, 0, "s/0", 1e9)])
    assert of(readings.log_ratio(runs, "none", "s", high=[0, 1], low=[2, 3])) == [round(np.log(4), 6)]


def test_one_client_and_one_domain():
    runs = frames(agg={0: [0.1, 0.2, 0.3, 0.5]})
    assert of(readings.only_client(runs, "agg", 2)) == [30]
    assert of(readings.only_domain(runs, "agg", domain=1, domains=2)) == [40]
