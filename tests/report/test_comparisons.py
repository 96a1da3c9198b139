"""Figures of a comparison, and the page that holds them."""

from pathlib import Path

import pandas as pd
import pytest

from tests.report.conftest import write_comparison
from tests.report.reading import Page, page_of

LEVELS = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9, "centralized": 0.95}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_comparison(tmp_path_factory.mktemp("levels") / "compare", LEVELS)


@pytest.fixture(scope="module")
def page(folder) -> Page:
    return page_of(folder)


def test_a_difference_has_two_intervals_and_a_point(page):
    thin, thick, dots = page.charts["forest"]["data"]
    assert dots["y"] == ["fedcac", "fedper", "centralized"]
    for place, mean in enumerate(dots["x"]):
        low, high = thick["x"][3 * place : 3 * place + 2]
        assert low < mean < high
        low, high = thin["x"][3 * place : 3 * place + 2]
        assert low < mean < high


def test_no_interval_ends_at_the_end_of_its_axis(page):
    for name in ("forest", "behind", "gains"):
        chart = page.charts[name]
        ends = [x for trace in chart["data"] for x in trace["x"] if x is not None]
        low, high = chart["layout"]["xaxis"]["autorangeoptions"]["include"]
        assert low < min(ends) < max(ends) < high


def test_both_intervals_p_and_what_seeds_resolve_are_told_of_every_method(page, folder):
    charts = page.charts
    table = pd.read_csv(folder / "table.csv").set_index("method")
    for chart, name in (("forest", "over_local"), ("behind", "best_ahead")):
        values = charts[chart]["layout"]["meta"]["table"]
        for row, text in zip(values["rows"], charts[chart]["data"][-1]["text"], strict=True):
            own = table.loc[row[0]]
            mean, low, high, *ends = (
                f"{100 * own[f'{name}{part}']:+.1f}".replace("-", "\u2212")
                for part in ("", "_low", "_high", "_resampled_low", "_resampled_high")
            )
            assert row[1:4] == [mean, f"{low} to {high}", " to ".join(ends)]
            assert all(value in text for value in row[1:5])
            assert row[5] == f"{100 * own[f'{name}_resolves']:.1f}"
            assert row[6] == f"{own[f'{name}_seeds_needed']:.0f}"
        assert len(values["heads"]) == len(values["rows"][0])


def test_the_best_is_not_set_against_local_twice(make_comparison):
    page = page_of(make_comparison({"local": 0.6, "fedcac": 0.9}, seeds=(0, 1)))
    assert "forest" in page.charts
    assert "behind" not in page.charts


def test_every_tried_point_is_shown_and_the_chosen_one_is_filled(page):
    lines = page.charts["tuning"]["data"]
    assert len(lines) == 4
    assert all(len(line["x"]) == 3 for line in lines)
    assert all(line["marker"]["color"].count("rgba(0,0,0,0)") == 2 for line in lines)


def test_what_single_clients_gain_is_told_by_method(make_comparison):
    charts = page_of(make_comparison({"local": 0.7, "fedcac": 0.9, "fedper": 0.4}, seeds=(0, 1))).charts
    trace = charts["gains"]["data"][-1]
    assert trace["y"] == ["fedcac", "fedper"]
    assert trace["text"] == ["20 of 20 clients gain", "0 of 20 clients gain"]
    assert trace["x"][0] > 0 > trace["x"][1]
