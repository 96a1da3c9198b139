"""The score against the values of the keys that vary between settings."""

import plotly.io
import pytest

from fedbench.report.over_keys import axis_places, keys_part
from fedbench.report.survey import Survey
from fedbench.results.matrix import Matrix, settings_of
from tests.report.conftest import write_comparison

LEVELS = {"local": 0.7, "fedper": 0.8}


def surveyed(folder, over, *levels) -> Survey:
    matrix = Matrix({"seeds": [0, 1]}, over, settings_of(over))
    for setting, own in zip(matrix.settings, levels, strict=True):
        write_comparison(folder / setting.path, own, seeds=(0, 1))
    matrix.write(folder)
    return Survey.load(folder)


def test_each_method_has_its_score_with_its_interval_at_every_value_in_order(tmp_path):
    survey = surveyed(tmp_path, {"partition.alpha": [0.5, 0.1]}, {"local": 0.6, "fedper": 0.9}, LEVELS)
    (chart,) = keys_part(survey).charts
    assert chart.id == "over-alpha"
    figure = plotly.io.from_json(chart.figure)
    lines = {trace.name: trace for trace in figure.data if trace.name}
    assert set(lines) == {"local", "fedper"}
    scores = [survey.boards[name]["fedper"].score for name in ("alpha=0.1", "alpha=0.5")]
    assert list(lines["fedper"].x) == [0.1, 0.5]
    assert list(lines["fedper"].y) == pytest.approx([100 * score.mean for score in scores], rel=1e-4)
    band = next(trace for trace in figure.data if trace.meta == {"method": "fedper", "band": True})
    ends = [scores[0].high, scores[1].high, scores[1].low, scores[0].low]
    assert list(band.y) == pytest.approx([100 * end for end in ends], rel=1e-4)


def test_of_two_keys_each_has_a_chart_for_every_value_of_the_other(tmp_path):
    over = {"partition.alpha": [0.1, 0.5], "participation": [0.5, 1]}
    names = [chart.id for chart in keys_part(surveyed(tmp_path, over, *[LEVELS] * 4)).charts]
    assert names == [
        "over-alpha,participation=0.5",
        "over-alpha,participation=1",
        "over-participation,alpha=0.1",
        "over-participation,alpha=0.5",
    ]


def test_numbers_have_their_places_and_far_ones_a_logarithmic_axis():
    assert axis_places([0.1, 0.5]) == ([0.1, 0.5], ["0.1", "0.5"])
    assert axis_places([0.1, 1, 10]) == ([0.1, 1.0, 10.0], None)
    assert axis_places([0, 10]) == ([0.0, 10.0], ["0", "10"])
    assert axis_places(["mnist", None]) == ([0.0, 1.0], ["mnist", "none"])
