"""The record of claims, and the one that is shipped."""

from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.record import RECORDED, ClaimsRecord
from fedbench_papers.claims.rows import load_rows


def test_it_is_read_back_with_its_conditions(tmp_path):
    made = ClaimsRecord.of([{"id": "C1", "parts": []}], Conditions(0.5, 3, (1, 2)))
    made.write(tmp_path / "claims.json")
    found = ClaimsRecord.read(tmp_path / "claims.json")
    assert found == made
    assert found.conditions == Conditions(0.5, 3, (1, 2))
    assert list(found.entries) == ["C1"]


def test_the_shipped_one_has_rows_of_today_under_their_own_conditions():
    found = ClaimsRecord.read(RECORDED)
    assert found.conditions == Conditions()
    assert found.entries
    assert set(found.entries) <= set(load_rows(None, None))
