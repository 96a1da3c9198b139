"""Heat maps of tables over two options."""

import json

from fedbench.results.statistics import interval
from fedbench_papers.tables.experiment import Experiment, names
from fedbench_papers.tables.heat import heat_map, heat_maps, two_options
from fedbench_papers.tables.reproduction import ComparedNumber

GRID = ("a p=0.5 gamma=0.05", "a p=0.5 gamma=0.8", "a p=0.05 gamma=0.8")


def number(method: str, published: float, ours: float | None, cell: str = "c") -> ComparedNumber:
    own = None if ours is None else interval([ours])
    return ComparedNumber(cell, method, "1", published, None, None, own, "after_agg", "")


def test_numbers_stand_in_order_and_missing_ones_are_empty():
    fig = heat_map(two_options(GRID), {GRID[0]: 1.0, GRID[2]: 3.0})
    (trace,) = fig.data
    assert (list(trace.y), list(trace.x)) == (["0.05", "0.5"], ["0.05", "0.8"])
    assert [list(row) for row in trace.z] == [[None, 3.0], [1.0, None]]
    assert (fig.layout.yaxis.title.text, fig.layout.xaxis.title.text) == ("p", "gamma")


def test_each_cell_has_the_papers_numbers_and_ours_if_there_are_any():
    found = [number(method, 50 + i, 40 + i) for i, method in enumerate(GRID)]
    found += [number(method, 60.0, None, "other") for method in GRID]
    made = heat_maps(found)
    assert [chart.title for chart in made] == ["c: published", "c: ours", "other: published"]
    assert json.loads(made[1].figure)["data"][0]["z"] == [[None, 42.0], [40.0, 41.0]]


def test_only_tables_over_two_options_have_them():
    assert two_options(["fedper", "fedcac"]) is None
    assert two_options(["a p=1", "a p=2"]) is None
    assert two_options(["a p=1 q=1", "a p=2 q=1"]) is None, "q is the same"
    assert two_options(["a p=1 q=1", "b p=2 q=2"]) is None
    assert two_options(["a p=1 q=1", "a p=2"]) is None
    found = {name for name in names() for cell in [*Experiment.load(name).cells][:1] if is_grid(name, cell)}
    tables = [f"co-pfl/{name}" for name in ("ablation-cowa", "ablation-cowa-v2", "p-gamma-grid", "p-gamma-grid-v2")]
    assert found == {*tables, *(f"{name}-working" for name in tables)}


def is_grid(name: str, cell) -> bool:
    return two_options([number.method for number in Experiment.load(name).of(cell)]) is not None
