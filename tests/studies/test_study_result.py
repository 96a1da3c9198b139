"""Studies as Python sees them."""

from fedbench.studies.compare import Comparison


def test_the_table_is_read_when_it_is_asked_for(tmp_path):
    left = Comparison(tmp_path)
    (tmp_path / "table.csv").write_text("method,mean\nfedper,0.5\n")
    assert left.table.to_dict("records") == [{"method": "fedper", "mean": 0.5}]
    assert left.table is left.table
    assert left.report == tmp_path / "report.html"
