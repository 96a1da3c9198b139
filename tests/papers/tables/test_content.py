"""What a page of the papers' tables shows."""

import pandas as pd

from fedbench.report.typeset import Cell
from fedbench.results.statistics import interval
from fedbench_papers.tables.content import NumberTable, PageContent, interval_columns, ours_text, seeds_text

TABLE = NumberTable(
    "traced", "Counts", "", ("cell", "ours"), [[Cell("a"), Cell("1.50")]], pd.DataFrame({"ours": [1.5]})
)


def test_ours_is_a_mean_with_half_of_its_interval_and_not_run_without_one():
    assert ours_text(interval([1.0, 2.0, 3.0]), ".2f", ".1f") == "2.00 ± 2.5"
    assert ours_text(interval([1.0]), ".2f", ".1f") == "1.00"
    assert (ours_text(None, ".2f", ".1f"), seeds_text(None)) == ("not run", "")
    assert seeds_text(interval([1.0, 2.0])) == "2"
    assert interval_columns(interval([1.0]), "ours") == {"ours": 1.0, "low": None, "high": None, "seeds": 1}
    assert interval_columns(None, "mean") == {"mean": None, "low": None, "high": None, "seeds": 0}


def test_a_table_is_written_in_its_kinds(tmp_path):
    TABLE.write(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(TABLE.files)
    assert (tmp_path / "traced.csv").read_text() == "ours\n1.5\n"
    assert "| a | 1.50 |" in (tmp_path / "traced.md").read_text()


def test_a_terminal_gets_the_tables_what_is_drawn_and_the_answer():
    assert PageContent([TABLE], [], "All alike.").text().splitlines()[-2:] == ["a     1.50", "All alike."]
    assert PageContent([], [], "All alike.", drawn="Accuracy.").text() == "Accuracy.\nAll alike."
