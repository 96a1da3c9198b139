"""Curves: what is drawn of them, their axes, and what stands out."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pandas as pd

from fedbench.report.curves import MOST_POINTS, newcomer_curves, thin_out
from fedbench.report.study import Study
from tests.report.conftest import add_newcomers
from tests.report.reading import Make, page_of


def test_a_short_run_has_no_ticks_between_its_rounds(make_run: Make, with_lambda: Callable) -> None:
    for rounds, tick in ((3, 1), (20, None)):
        folder = make_run(f"of-{rounds}", method="fedmosaic", rounds=rounds)
        with_lambda(folder, rounds)
        charts = page_of(folder).charts
        axes = [charts[name]["layout"]["xaxis"] for name in ("curve", "lambda")]
        assert [axis.get("dtick") for axis in axes] == [tick] * 2


def test_a_long_curve_keeps_its_ends_and_loses_the_rest_evenly() -> None:
    frame = pd.DataFrame({"round": range(1, 5 * MOST_POINTS + 1)})
    found = thin_out(frame)["round"].tolist()
    assert len(found) == MOST_POINTS
    assert (found[0], found[-1]) == (1, 5 * MOST_POINTS)
    assert {b - a for a, b in pairwise(found)} <= {5, 6}
    assert len(thin_out(frame[:MOST_POINTS])) == MOST_POINTS


def test_methods_beyond_the_colours_are_quiet_without_a_band_until_they_are_chosen(make_comparison: Make) -> None:
    names = [*(f"fed{letter}" for letter in "abcdefgh"), "local"]
    levels = {name: 0.9 - 0.02 * place for place, name in enumerate(names)}
    page = page_of(make_comparison(levels, seeds=(0, 1)))
    traces = page.charts["curve-after_agg"]["data"]
    lines = {trace["name"]: trace["showlegend"] for trace in traces if "name" in trace}
    bands = {trace["meta"]["method"]: trace["visible"] for trace in traces if trace["meta"].get("band")}
    assert set(lines) == set(bands) == set(names)
    assert lines == bands
    assert [name for name, loud in lines.items() if not loud] == ["fedh"]
    assert page.source.count('aria-pressed="true"><i') == len(names) - 1


def test_costs_that_are_far_apart_stand_on_a_logarithmic_axis(make_comparison: Make) -> None:
    near = page_of(make_comparison({"local": 0.7, "fedcac": 0.8}, "near", seeds=(0,))).charts
    far = page_of(make_comparison({"local": 0.7, "fedcac": 0.8, "fedmosaic": 0.8}, "far", seeds=(0,))).charts
    assert (near["traffic"]["layout"]["xaxis"].get("type"), far["traffic"]["layout"]["xaxis"]["type"]) == (None, "log")
    steps = {trace["name"]: trace["x"] for trace in far["steps"]["data"]}
    assert steps["fedcac"] == [20.0 * number for number in range(1, 7)]
    level = next(trace for trace in far["traffic"]["data"] if trace["name"] == "local")
    assert len(set(level["y"])) == 1


def test_the_points_of_a_grid_are_drawn_over_each_other(make_grid: Make) -> None:
    from tests.report.conftest import write_run

    folder: Path = make_grid(space={"method.tau": [0.1, 0.3, 0.5]}, fail=(2,))
    for value, level in ((0.1, 0.7), (0.3, 0.8)):
        write_run(folder / f"run/{value}", level=level, seeds=(90,))
    traces = page_of(folder).charts["tried"]["data"]
    assert [trace["name"] for trace in traces if trace["showlegend"]] == ["tau=0.3"]
    assert {trace["name"] for trace in traces if "name" in trace} == {"tau=0.1", "tau=0.3"}


def test_newcomers_are_drawn_over_their_epochs_one_line_per_method(make_comparison: Make) -> None:
    folder = make_comparison({"local": 0.6, "fedper": 0.7})
    assert newcomer_curves(Study.load(folder)) is None
    add_newcomers(folder / "final" / "fedper", 0.7)
    add_newcomers(folder / "final" / "local", 0.5)
    figure = newcomer_curves(Study.load(folder))
    assert figure is not None
    lines = {t.name: (list(t.x), list(t.y)) for t in figure.data if t.name}
    assert lines == {"fedper": ([0, 1, 2], [52, 62, 72]), "local": ([0, 1, 2], [32, 42, 52])}
    assert figure.layout.xaxis.title.text == "local epochs of a newcomer"
    assert list(figure.layout.xaxis.tickvals) == [0, 1, 2]
