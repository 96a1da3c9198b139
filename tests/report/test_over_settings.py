"""The summary over settings on the page: its numbers, units and caveats."""

import numpy as np
import pandas as pd
import pytest

from fedbench.report.over_settings import improvement, intro, middle_gains, profiles, summary_frame
from fedbench.report.parts import describe_figure
from fedbench.report.theme import LIGHT
from fedbench.results.over_settings import OverSettings, over_settings
from tests.results.tabled import ACCURACY, ERROR

COLOURS = {"ditto": LIGHT["accent"], "fedper": LIGHT["quiet"]}


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    index = pd.MultiIndex.from_product([["easy", "hard"], [0, 1]])
    gains = {"local": 0.0, "fedper": [-0.1, 0.0, 0.0, 0.1], "ditto": [0.1, 0.2, 0.2, 0.3]}
    local = np.array([0.5, 0.5, 0.2, 0.2])
    return pd.DataFrame({label: local + np.array(gain) for label, gain in gains.items()}, index=index)


@pytest.fixture(scope="module")
def found(scores) -> OverSettings:
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
    assert "in % of local training's error in the setting" in intro(found, ERROR)
    assert found.means["ditto"].value < 0


def test_what_intervals_mean_is_said(found, scores):
    assert intro(found, ACCURACY).startswith("Runs of 2 settings and 2 seeds that all methods have: ")
    assert "no verdict depends on them" in intro(found, ACCURACY)
    one = over_settings(scores.xs(0, level=1, drop_level=False), ACCURACY)
    assert "One seed, so no intervals" in intro(one, ACCURACY)
    assert values(improvement(one))[0] == ["ditto", "100", "", ""]
