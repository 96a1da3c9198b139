"""The record of claims, and the one that is shipped."""

import json
import re
from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.page import as_markdown
from fedbench_papers.claims.record import RECORDED, ClaimsRecord
from fedbench_papers.claims.rows import load_rows
from fedbench_papers.claims.verdicts import PREMISE


def test_it_is_read_back_with_its_conditions(tmp_path):
    (row, *_) = ClaimsRecord.read(RECORDED).rows
    made = ClaimsRecord.of([row], Conditions(0.5, 3, (1, 2)))
    made.write(tmp_path / "claims.json")
    found = ClaimsRecord.read(tmp_path / "claims.json")
    assert found == made
    assert found.conditions == Conditions(0.5, 3, (1, 2))
    assert found.entries == {row["id"]: row}


@pytest.mark.parametrize("change", [{"status": None}, {"parts": 5}, {"parts": [{}]}, {"arms": []}])
def test_a_row_that_tables_could_not_show_is_one_line(tmp_path, change):
    (row, *_) = ClaimsRecord.read(RECORDED).rows
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [{**row, **change}]}))
    with pytest.raises(
        ConfigError, match=r"claims.json: damaged \(rows.0: \w+ is missing or of another kind\).*bring the file back"
    ):
        ClaimsRecord.read(tmp_path / "claims.json")


def test_the_shipped_one_has_rows_of_today_under_their_own_conditions():
    found = ClaimsRecord.read(RECORDED)
    assert found.conditions == Conditions()
    assert found.entries
    assert list(found.entries) == list(load_rows(None, None))
    for name, row in found.entries.items():
        assert not row["parts"] or row["made"], name
        assert row["parts"] or not row.get("levels"), name


def test_the_page_of_verdicts_in_the_docs_is_that_of_the_shipped_ones():
    text = (Path(__file__).parents[3] / "papers" / "docs" / "claims.md").read_text()
    assert text.startswith(as_markdown(ClaimsRecord.read(RECORDED)))


SHARE = re.compile(r"([\d,]+) of (?:up to |about )?([\d,]+) (clients|training images a client|public images|rounds)")
KEYS = {"clients": "partition.clients", "training images a client": "partition.train_size"}
KEYS |= {"public images": "public.size", "rounds": "rounds"}


def test_every_row_that_is_compared_with_an_experiment_says_in_what_it_is_far():
    rows = load_rows(None, None)
    assert {row.reading_of or name for name, row in rows.items() if not row.far} == {"F11", "M9", "M10"}
    shares = 0
    for name, row in rows.items():
        for share, whole, what in SHARE.findall(row.far):
            ours, theirs = (int(number.replace(",", "")) for number in (share, whole))
            assert 2 * ours <= theirs, (name, what)
            assert not row.arms or ours in {arm.fixed.get(KEYS[what]) for arm in row.arms}, (name, what)
            shares += 1
    assert shares > 50


def test_the_theorem_whose_premise_runs_violate_is_not_judged():
    judged = [part for part in ClaimsRecord.read(RECORDED).entries["M10"]["parts"] if part["judged"]]
    assert [part["verdict"] for part in judged] == [PREMISE]
