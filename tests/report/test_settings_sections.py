"""The summary over settings on the page: its numbers, units and caveats."""

import json

import numpy as np
import pandas as pd
import plotly.io
import pytest

from fedbench.report.parts import describe_figure
from fedbench.report.settings_sections import (
    axis_places,
    improvement,
    keys_part,
    middle_gains,
    profiles,
    summary_frame,
    words_of_gains,
)
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.theme import LIGHT
from fedbench.results.settings_file import SettingsFile, settings_of
from fedbench.results.settings_summary import SettingsSummary, over_settings
from tests.report.conftest import BYTES, ROUNDS, write_comparison, write_traces
from tests.results.tabled import ACCURACY, ERROR

COLOURS = {"ditto": LIGHT["accent"], "fedper": LIGHT["quiet"]}


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    index = pd.MultiIndex.from_product([["easy", "hard"], [0, 1]])
    gains = {"local": 0.0, "fedper": [-0.1, 0.0, 0.0, 0.1], "ditto": [0.1, 0.2, 0.2, 0.3]}
    local = np.array([0.5, 0.5, 0.2, 0.2])
    return pd.DataFrame({label: local + np.array(gain) for label, gain in gains.items()}, index=index)


@pytest.fixture(scope="module")
def found(scores) -> SettingsSummary:
    return over_settings(scores, ACCURACY)


def values(fig) -> list[list]:
    return fig.layout.meta["table"]["rows"]


def test_the_highest_is_on_top_with_its_interval(found):
    rows = values(middle_gains(found, ACCURACY))
    assert [row[0] for row in rows] == ["ditto", "fedper"]
    assert rows[0][1:] == ["20", "15", "25"]
    assert middle_gains(found, ACCURACY).layout.xaxis.title.text == "gain over local training, points"


def test_the_probability_of_improvement_counts_ties_half(found):
    rows = values(improvement(found))
    assert rows == [["ditto", "100", "100", "100"], ["fedper", "50", "25", "75"]]


def test_profiles_fall_from_all_runs_to_none(found):
    fig = profiles(found, ACCURACY, COLOURS)
    (ditto,) = [trace for trace in fig.data if trace.name == "ditto"]
    assert (ditto.x[0], ditto.x[-1]) == (-10, 30)
    assert (ditto.y[0], ditto.y[50], ditto.y[60], ditto.y[-1]) == (100, 75, 75, 0)
    bands = {trace.meta["method"]: trace.visible for trace in fig.data if trace.fill}
    assert bands == {"fedper": False, "ditto": True}, "that of a quiet method shows once it is chosen"
    assert "101 rows of above, fedper, ditto" in describe_figure(fig)


def test_the_file_has_the_same_numbers(found):
    row = summary_frame(found).set_index("method").loc["ditto"]
    assert row["interquartile_mean"] == pytest.approx(0.2)
    assert [row["better_than_local"], row["seeds"], row["settings"]] == [1, 2, 2]


def test_errors_are_compared_with_local_training(scores):
    found = over_settings(scores, ERROR)
    assert middle_gains(found, ERROR).layout.xaxis.title.text == "gain over local training, % of its error"
    assert "in % of local training's error in the setting" in words_of_gains(found, ERROR)
    assert found.means["ditto"].mean < 0


def test_what_intervals_mean_is_said(found, scores):
    assert words_of_gains(found, ACCURACY).startswith("Runs of 2 settings and 2 seeds that all methods have: ")
    assert "no verdict depends on them" in words_of_gains(found, ACCURACY)
    one = over_settings(scores.xs(0, level=1, drop_level=False), ACCURACY)
    assert "One seed, so no intervals" in words_of_gains(one, ACCURACY)
    assert values(improvement(one))[0] == ["ditto", "100", "", ""]


LEVELS = {"local": 0.7, "fedper": 0.8}


def surveyed(folder, over, *levels) -> SettingsStudy:
    matrix = SettingsFile({"seeds": [0, 1]}, over, settings_of(over))
    for setting, own in zip(matrix.settings, levels, strict=True):
        write_comparison(folder / setting.path, own, seeds=(0, 1))
    matrix.write(folder)
    return SettingsStudy.load(folder)


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


def test_noise_is_also_drawn_by_its_epsilon_and_methods_without_one_are_left_out(tmp_path):
    over = {"privacy.noise": [0, 1, 4]}
    survey = surveyed(tmp_path, over, *({"local": 0.6, "fedper": level} for level in (0.9, 0.7, 0.5)))
    for setting, epsilon in zip(survey.settings[1:], (9.0, 0.5), strict=True):
        rows = [
            (seed, r, client, "epsilon", epsilon * r / 6 + seed) for seed in (0, 1) for r in (3, 6) for client in (-1,)
        ]
        write_traces(tmp_path / setting.path / "final" / "fedper", [*rows, (0, 6, 3, "client_epsilon", 99.0)])
    survey = SettingsStudy.load(tmp_path)
    by_noise, by_epsilon = keys_part(survey).charts
    assert (by_noise.id, by_epsilon.id) == ("over-noise", "spent-noise")
    figure = plotly.io.from_json(by_epsilon.figure)
    assert figure.layout.xaxis.type == "log"
    (line,) = [trace for trace in figure.data if trace.name]
    assert line.name == "fedper"
    assert list(line.x) == pytest.approx([1.0, 9.5])  # the last round, mean over the seeds 0 and 1
    assert list(line.text) == ["noise=4", "noise=1"]
    means = [survey.boards[name]["fedper"].score.mean for name in ("noise=4", "noise=1")]
    assert list(line.y) == pytest.approx([100 * mean for mean in means], rel=1e-4)


def test_compression_is_also_drawn_by_what_a_client_sends(tmp_path):
    survey = surveyed(tmp_path, {"compression.name": ["none", "topk"]}, LEVELS, {"local": 0.6, "fedper": 0.7})
    path = tmp_path / survey.settings[1].path / "final" / "fedper" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    shorter = [{**line, "bytes_up": line["bytes_up"] and line["bytes_up"] // 10} for line in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in shorter))
    charts = {chart.id: plotly.io.from_json(chart.figure) for chart in keys_part(SettingsStudy.load(tmp_path)).charts}
    line = next(trace for trace in charts["spent-compression"].data if trace.name == "fedper")
    sent = BYTES.get("fedper", (26_000, 0))[0] * ROUNDS / 1e6
    assert list(line.x) == pytest.approx([sent / 10, sent])
    assert list(line.text) == ["compression=topk", "compression=none"]


def test_other_keys_have_one_chart(tmp_path):
    charts = keys_part(surveyed(tmp_path, {"privacy.noise": [1, 2]}, LEVELS, LEVELS)).charts
    assert [chart.id for chart in charts] == ["over-noise"], "no run has an epsilon"
