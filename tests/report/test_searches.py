"""How a method depends on its keys."""

from itertools import product

import numpy as np
import pytest

from fedbench.installation import EXTRAS
from fedbench.report.searches import importance, intro, on_scale, rates_note, search_charts, search_notes, ticks
from fedbench.report.study import Study
from fedbench.results.plan import Entry, Plan
from tests.report.reading import Make, page_of

SPACE = {"method.tau": [0.1, 0.3, 0.5], "method.beta": [None, 10, 100], "train.lr": [0.001, 0.01, 0.1]}


def entry(values: dict, score: float | None, status: str = "done") -> Entry:
    return Entry("candidate", "fedcac", values, 90, ".", status, None, {} if score is None else {"val": score})


def test_more_than_two_keys_are_drawn_as_lines_and_shares(make_grid: Make) -> None:
    page = page_of(make_grid(space=SPACE, final=False))
    chart = page.charts["lines-0"]
    assert chart["layout"]["xaxis"]["ticktext"] == ["tau", "beta", "train.lr", "validation"]
    widths = [line["line"]["width"] for line in chart["data"]]
    assert max(widths) == widths[-1] > widths[0], "the chosen candidate lies on top"
    assert {round(height, 6) for line in chart["data"] for height in line["y"][:3]} == {0, 0.5, 1}
    table = chart["layout"]["meta"]["table"]
    assert table["heads"] == ["tau", "beta", "train.lr", "validation"]
    assert ["0.1", "none", "0.001"] in [row[:3] for row in table["rows"]], "values, not places on the axes"
    assert {"lines-0", "shares-0"} <= page.charts.keys()


def test_without_optuna_the_lines_say_what_is_missing(make_grid: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "tune", {"no_such_optuna": "Optuna"})
    folder = make_grid(space=SPACE, final=False)
    page = page_of(folder)
    assert "lines-0" in page.charts
    assert "shares-0" not in page.charts
    (told,) = [said for _, _, _, said in search_charts(Study.load(folder))]
    assert told.endswith("The importance of each key needs Optuna: pip install 'fedbench-pfl[tune]'.")


def test_two_keys_of_a_grid_are_not(make_grid: Make) -> None:
    page = page_of(make_grid(space={"method.tau": [0.1, 0.3], "train.lr": [0.01, 0.1]}, final=False))
    assert not [name for name in page.charts if name.startswith("lines")]


@pytest.mark.parametrize("strong", ["method.tau", "method.beta", "train.lr"])
def test_the_key_that_decides_has_the_largest_share(strong: str) -> None:
    points = [dict(zip(SPACE, values, strict=True)) for values in product(*SPACE.values())]
    noise = np.random.default_rng(0).normal(0, 0.01, len(points))
    entries = [
        entry(point, 0.5 + 0.2 * SPACE[strong].index(point[strong]) + extra)
        for point, extra in zip(points, noise, strict=True)
    ]
    shares = importance(entries, list(SPACE))
    assert next(iter(shares)) == strong
    assert shares[strong] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert importance(entries, list(SPACE)) == shares


def test_places_on_an_axis() -> None:
    assert on_scale([0.001, 0.1]) == ([-3, -1], ["0.001", "0.1"])
    assert on_scale([1, 2.5])[0] == [1, 2.5]
    assert on_scale([None, 10, None]) == ([0, 1, 0], ["none", "10", "none"])
    assert on_scale([True, False])[1] == ["True", "False"]
    many = ticks(list(np.linspace(0, 1, 40)), [str(i) for i in range(40)])
    assert (many[0], many[-1]) == ((0, "0"), (1, "39"))
    assert 5 < len(many) < 14
    assert ticks([0.5, 0.5], ["a", "a"]) == [(0.5, "a")]


def test_what_was_stopped_or_left_out_is_said() -> None:
    entries = [entry({"train.lr": 0.1}, 0.5), entry({"train.lr": 9}, None, "stopped")]
    plan = Plan(
        "grid",
        "fedcac",
        {},
        entries,
        search="optuna",
        rounds_saved=(1200, 3000),
        refused=[["fedcac", "lr=-1", "must be > 0"]],
    )
    assert intro(plan) == "Candidates proposed by Optuna from earlier results, on validation."
    assert search_notes(plan) == ["Left out as invalid: fedcac lr=-1: must be > 0."], "it may go on"
    plan.choices = {"fedcac": {"train.lr": 0.1}}
    assert search_notes(plan)[-1] == (
        "1 of 2 trials stopped early, the worse half of their method's candidates: 1,200 of 3,000 rounds of tuning "
        "were not run."
    )
    plan.gpu_full = {"fedcac lr=0.1 seed 90": [0.5, 1.0]}
    assert search_notes(plan)[-1:] == plan.gpu_notes() != []


def test_the_page_says_which_rates_were_tried_and_whether_the_best_one_is_bracketed() -> None:
    plan = Plan("compare", None, {}, [])
    plan.spaces = {"local": {"train.lr": [0.01, 0.1, 0.03]}, "fedper": {"train.lr_scale": [0.3, 1.0]}, "fedbn": {}}
    plan.choices = {"local": {"train.lr": 0.03}, "fedper": {"train.lr_scale": 1.0}, "fedbn": {}}
    plan.ends = {"fedper": ["train.lr_scale"]}
    assert rates_note(plan) == [
        "Learning rates chosen: local train.lr 0.03 of 0.01 to 0.1, the neighbours tried and no better; "
        "fedper train.lr_scale 1 of 0.3 to 1."
    ]
    assert rates_note(Plan("compare", None, {}, [])) == []
