"""Pictures of a grid's points."""

import pytest

from tests.report.reading import Make, Page, page_of


def test_the_best_cell_is_framed_and_failed_ones_say_so(grid_page: Page) -> None:
    layouts = [grid_page.charts[f"grid-{i}"]["layout"] for i in range(2)]
    assert [shape["line"]["width"] for shape in layouts[0]["shapes"]] == [1, 4]
    assert [note["text"] for note in layouts[0]["annotations"]] == ["failed"]
    assert "shapes" not in layouts[1]


@pytest.mark.parametrize(
    ("space", "panels", "kind"),
    [
        ({"method.tau": [0.1, 0.3, 0.5]}, 1, "scatter"),
        ({"method.tau": [0.1, 0.3], "method.beta": [5, 10]}, 1, "heatmap"),
        (
            {"method.tau": [0.1, 0.3], "method.beta": [5, 10], "train.lr": [0.01, 0.1], "train.epochs": [1, 2]},
            4,
            "heatmap",
        ),
    ],
)
def test_any_number_of_varying_keys_has_its_picture(make_grid: Make, space: dict, panels: int, kind: str) -> None:
    found = [
        chart for name, chart in page_of(make_grid(space=space, final=False)).charts.items() if name.startswith("grid-")
    ]
    assert [chart["data"][0]["type"] for chart in found] == [kind] * panels


def test_values_stand_in_order_also_those_tried_beyond_the_end_of_a_range(make_grid: Make) -> None:
    space = {"method.tau": [0.3, 0.5, 0.1, 0.0], "method.beta": [None, 30.0, 5.0]}
    (chart,) = [
        chart for name, chart in page_of(make_grid(space=space, final=False)).charts.items() if name.startswith("grid-")
    ]
    assert chart["data"][0]["y"] == ["0", "0.1", "0.3", "0.5"]
    assert chart["data"][0]["x"] == ["none", "5", "30"]


def test_values_of_a_single_key_stand_in_order(make_grid: Make) -> None:
    found = page_of(make_grid(space={"method.tau": [0.3, 0.5, 0.1]}, final=False)).charts
    (chart,) = [chart for name, chart in found.items() if name.startswith("grid-")]
    assert chart["layout"]["xaxis"]["categoryarray"] == ["0.1", "0.3", "0.5"]
