"""The page of a published experiment made again."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedbench.results.plan import Plan
from fedbench.results.schema import TRACES_SCHEMA
from fedbench_papers.tables.page import line, orders, reproduction_answer, reproduction_text
from fedbench_papers.tables.reproduction import CellRecord, ReproductionRecord
from tests.report.conftest import write_comparison
from tests.report.reading import page_of

PUBLISHED = {"local": 70.0, "fedper": 81.0, "fedcac": 90.0, "ditto": 75.0}


def write_published(out):
    """Three of four methods were run."""
    write_comparison(out / "cells" / "x", {"local": 0.7, "fedper": 0.8, "fedcac": 0.85})
    numbers = [
        {"method": m, "table": "1", "mean": mean, "std": 1.0, "dataset": "d", "setting": "s"}
        for m, mean in PUBLISHED.items()
    ]
    cells = [CellRecord("d, s", "cells/x", None, False, "last", numbers)]
    ReproductionRecord("paper/table", "three methods", "small", ["rounds: not said; 6"], {"rounds": 6}, 3, cells).write(
        out
    )
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("published"))


def test_numbers_stand_side_by_side(folder):
    found = ReproductionRecord.read(folder).compare_numbers(folder)
    lines = {one.method: [cell.text for cell in line(one)] for one in found}
    assert lines["fedper"][2] == "81.00 ± 1.00"
    assert lines["ditto"][3:] == ["not run", "", "", "", "", ""]
    assert float(lines["local"][4].replace("\u2212", "-")) == pytest.approx(0, abs=3)
    assert reproduction_text(folder).splitlines()[-1] == reproduction_answer(ReproductionRecord.read(folder), found)


def test_a_run_that_goes_on_has_no_number_yet(tmp_path):
    out = write_published(tmp_path)
    plan = Plan.read(out / "cells" / "x")
    plan.entries = [replace(entry, status="missing") if entry.label == "fedper" else entry for entry in plan.entries]
    plan.write(out / "cells" / "x")
    assert [one.method for one in ReproductionRecord.read(out).compare_numbers(out) if one.ours is None] == [
        "fedper",
        "ditto",
    ]


def test_pooled_and_single_clients_are_other_numbers(folder):
    made = ReproductionRecord.read(folder)
    values = {}
    for name, client, pooled in (("plain", None, False), ("pooled", None, True), ("one", 3, False)):
        cell = CellRecord("d, s", "cells/x", client, pooled, "last", made.cells[0].numbers)
        found = ReproductionRecord("a", "b", "full", [], {}, None, [cell]).compare_numbers(folder)[0]
        values[name] = found.ours.mean, found.scored
    assert values["pooled"][1] == "pooled over all test samples"
    assert values["one"][1] == "client 3"
    assert values["one"][0] != values["plain"][0]


def test_the_point_is_that_of_each_number(folder):
    made = ReproductionRecord.read(folder)
    numbers = [{**number, "point": point} for number in made.cells[0].numbers for point in ("after_agg", "after_fit")]
    cell = replace(made.cells[0], numbers=numbers)
    agg, fit, *_ = ReproductionRecord("a", "b", "full", [], {}, None, [cell]).compare_numbers(folder)
    assert [line(own)[7].text for own in (agg, fit)] == ["after aggregation", "after local training"]
    assert agg.method == fit.method


COUNT = {"method": "local", "what": "personal parameters", "table": "5", "mean": 41.0, "trace": "count", "times": 10.0}


def test_traced_counts_stand_beside_published_ones(tmp_path):
    """Of two clients in two seeds; an earlier round does not count."""
    out = write_published(tmp_path)
    plan = Plan.read(out / "cells" / "x")
    rows = [(0, 1, 0, 9.0), (0, 2, 0, 4.0), (0, 2, 1, 5.0), (1, 2, 0, 3.5), (1, 2, 1, 3.0)]
    lines = [dict(zip(TRACES_SCHEMA.names, (*row[:3], "count", row[3]), strict=True)) for row in rows]
    file = out / "cells" / "x" / plan.final("local")[0].path / "traces.parquet"
    pq.write_table(pa.Table.from_pylist(lines, TRACES_SCHEMA), file)
    made = ReproductionRecord.read(out)
    traced = [COUNT, {**COUNT, "method": "ditto"}, {**COUNT, "method": "fedper"}]
    replace(made, cells=[replace(made.cells[0], traced=traced)]).write(out)
    found = {one.method: one.ours for one in ReproductionRecord.read(out).compare_traces(out)}
    assert found["local"].values == (45.0, 32.5)
    assert (found["ditto"], found["fedper"]) == (None, None)
    page = page_of(out)
    assert "traced" in page.sections
    assert "\u22122.25" in page.text
    assert "-2.25" in reproduction_text(out)
    assert (out / "traced.csv").read_text().startswith("cell,method,what,table,published,ours,low,high,seeds")


def test_its_page_has_order_departures_and_what_is_open(folder):
    page = page_of(folder)
    assert page.answer.startswith("3 numbers of paper/table reproduced")
    assert "only signs and orders mean something" in page.text
    assert "Unlike the paper: rounds = 6." in page.text
    assert "Kendall's tau between the paper's order and ours is 1.00" in page.text
    assert "rounds: not said; 6" in page.text
    assert "cells/x/report.html" in page.references
    assert len(page.charts["against"]["data"][1]["x"]) == 3
    assert orders(ReproductionRecord.read(folder).compare_numbers(folder))


def test_nothing_run_yet(tmp_path):
    ReproductionRecord("paper/table", "x", "full", [], {}, None, []).write(tmp_path)
    assert page_of(tmp_path).answer == "Nothing of paper/table has been run yet."
