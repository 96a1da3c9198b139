"""Studies as Python sees them."""

import pytest

from fedbench.studies.claims.study import Claims
from fedbench.studies.compare import Comparison
from fedbench.studies.published.reproduce import Reproduction


@pytest.mark.parametrize(
    ("kind", "file"), [(Comparison, "table.csv"), (Reproduction, "table.csv"), (Claims, "claims.csv")]
)
def test_the_table_is_read_when_it_is_asked_for(kind, file, tmp_path):
    left = kind(tmp_path)
    (tmp_path / file).write_text("method,mean\nfedper,0.5\n")
    assert left.table.to_dict("records") == [{"method": "fedper", "mean": 0.5}]
    assert left.table is left.table
    assert left.report == tmp_path / "report.html"
