"""Curves, clients and cost: colours and axes."""

import json
import re

from tests.report.reading import Make, Page, page_of


def test_every_colour_of_a_figure_has_a_twin_in_the_dark(grid_page: Page) -> None:
    from fedbench.report.theme import DARK, LIGHT, with_opacity

    known = (
        {*LIGHT.values()} | {with_opacity(colour, 0).rsplit(",", 1)[0] for colour in LIGHT.values()} | {"rgba(0,0,0"}
    )
    text = json.dumps(grid_page.charts)
    used = set(re.findall(r'"(#[0-9a-f]{6}|rgba\(\d+,\d+,\d+)[",]', text))
    assert used
    assert used <= known
    assert LIGHT.keys() == DARK.keys()
    assert len(set(LIGHT.values())) == len(LIGHT)


def test_a_method_has_one_colour_in_all_figures(grid_page: Page) -> None:
    charts = grid_page.charts
    for method in ("fedcac", "local", "centralized", "fedavg-ft"):
        found = {
            trace["line"]["color"]
            for name in ("curve-after_agg", "curve-after_fit", "traffic")
            for trace in charts[name]["data"]
            if trace.get("name") == method
        }
        assert len(found) == 1


def test_the_public_set_stands_below_the_clients(make_run: Make) -> None:
    folder = make_run(method="fedmosaic", rounds=1, seeds=(0,))
    path = folder / "partition.json"
    tree = json.loads(path.read_text())
    tree["0"]["public_class_counts"] = [0, 7, *[0] * 8]
    path.write_text(json.dumps(tree))
    chart = page_of(folder).charts["partition"]
    assert chart["layout"]["yaxis"]["ticktext"][-1] == "public set"
    dots = chart["data"][0]
    assert (dots["x"][-1], dots["y"][-1], dots["customdata"][-1]) == (1, 10, 7)
