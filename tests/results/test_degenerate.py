"""Which runs are degenerate: at the last evaluated round, or in more than half of them."""

import pandas as pd
import pytest

from fedbench.report.in_python import answer_of
from fedbench.results.degenerate import degenerate_seeds
from fedbench.results.files import write_json_atomically, write_parquet_atomically
from fedbench.results.reader import Records
from fedbench.results.schema import TRACES_SCHEMA
from fedbench.results.summary import summarise
from tests.report.conftest import write_comparison, write_run

TRACES = ["seed", "round", "client", "name", "value"]


@pytest.mark.parametrize(
    ("marked", "found"),
    [([], []), ([1], []), ([1, 2], []), ([1, 2, 3], [7]), ([4], [7]), ([1, 2, 3, 4], [7])],
)
def test_a_seed_is_degenerate_at_its_end_or_mostly(marked, found):
    metrics = pd.DataFrame({"seed": 7, "round": [0, 1, 2, 3, 4], "point": "after_agg"})
    traces = pd.DataFrame([(7, t, -1, "degenerate", 1.0) for t in marked], columns=TRACES)
    other = pd.DataFrame([(7, t, -1, "live_share", 1.0) for t in range(5)], columns=TRACES)
    assert degenerate_seeds(metrics, pd.concat([traces, other])) == found


def test_a_summary_says_which_seeds_are_degenerate(tmp_path):
    folder = write_run(tmp_path / "run")
    mark(folder, seeds=[1])
    assert summarise(Records(folder), [])["degenerate"] == [1]
    assert "degenerate" not in summarise(Records(write_run(tmp_path / "other")), [])


def test_a_degenerate_method_is_no_winner(tmp_path):
    folder = write_comparison(tmp_path, {"local": 0.6, "fedcac": 0.8}, seeds=range(5))
    before = answer_of(folder)
    mark(folder / "final" / "fedcac", seeds=range(5))
    write_json_atomically(
        folder / "final" / "fedcac" / "summary.json", summarise(Records(folder / "final" / "fedcac"), [])
    )
    assert "fedcac is degenerate" not in before
    assert "fedcac is degenerate" in answer_of(folder)


def mark(folder, seeds) -> None:
    """Marks the last round of these seeds."""
    rows = [(seed, 6, -1, "degenerate", 1.0) for seed in seeds]
    columns = dict(zip(TRACES, map(list, zip(*rows, strict=True)), strict=True))
    write_parquet_atomically(folder / "traces.parquet", columns, TRACES_SCHEMA)
