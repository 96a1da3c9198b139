"""The page and the tables of claims."""

import csv
import json
from html import escape
from pathlib import Path

import pytest

from fedbench.report import make_report
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.page import bar, in_field, write_claims
from fedbench_papers.claims.record import ClaimsRecord
from tests.papers.claims.made_rows import OTHER, PART, ROW
from tests.papers.field.made import made_record
from tests.report.reading import Page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [ROW, OTHER]}))
    write_claims(tmp_path)
    return tmp_path


def test_every_verdict_has_interval_minutes_and_command(folder):
    text = (folder / "claims.md").read_text()
    assert "| C1 | A / B & <more> | holds (after the fit: undecided) |  |  | 2.0 |" in text
    assert "| C2 | A / B & <more> | not run yet |  |  |  |" in text
    line = "| a | A better than B, after aggregation | holds | +1.25 (0.50 to 2.00) | 0.50 | 0.01 (0.02) | 1.00, 1.50 |"
    assert line in text
    assert "at the other point: undecided; best rounds on test +1.40" in text
    assert "- command: `fedbench claims --only C1`" in text
    assert "- runs: 6 own runs, 2.0 minutes of work, seeds 0 to 2; uses the runs of M9" in text
    assert (
        "gradient steps per client and round; all: method fedper\n  - x (train.lr 0.1): 61.0, 70.0, 4\n  - y\n" in text
    )
    assert "- chosen on validation: C1 x train.lr 0.05" in text
    assert "## C2" not in text


def test_the_conditions_stand_on_the_page_and_in_the_table(folder):
    said = "Conditions of all rows: scale 1, rounds of each row, seeds of each row."
    assert said in Page(folder / "report.html").text
    ClaimsRecord.of([ROW], Conditions(0.5, 3, (0, 1, 2))).write(folder / "claims.json")
    write_claims(folder)
    said = "Conditions of all rows: scale 0.5, rounds 3, seeds 0 1 2, unlike the rows' settings."
    assert said in Page(folder / "report.html").text
    assert said in (folder / "claims.md").read_text()


def test_the_table_as_a_file(folder):
    rows = list(csv.DictReader((folder / "claims.csv").open()))
    found = [(row["id"], row["part"], row["verdict"]) for row in rows]
    assert found == [("C1", "a", "holds"), ("C2", "", "not run yet")]
    assert rows[0]["values"] == "1 1.5"


def test_the_page_opens_without_a_network_and_escapes(folder):
    page = Page(folder / "report.html")
    assert page.sections == ["answer", "rows", "field", "rules", "row-C1"]
    assert "<more>" in page.text
    assert "<more>" not in page.source
    assert not [where for where in page.references if where.startswith(("http", "//"))]
    assert "1 of 2 rows were run, with 1 part and 1 test. Holds after Holm's correction: 1." in page.text


def test_intervals_share_a_strip_with_0():
    wide = {**PART, "low": -2.0, "high": 2.0, "mean": 0.0}
    assert bar(PART, [PART, wide]) == {"start": 62.5, "end": 100.0, "mean": 81.25, "zero": 50.0}
    assert bar({**PART, "low": None}, [PART]) is None


def test_the_page_is_made_again_from_the_table(folder):
    (folder / "report.html").unlink()
    assert make_report(folder) == folder / "report.html"
    assert (folder / "report.html").exists()


def test_what_holds_by_its_own_test_only_leans_wherever_it_is_shown(tmp_path):
    by_chance = {**ROW, "parts": [{**PART, "p_adjusted": 0.2}]}
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [by_chance]}))
    page = Page(write_claims(tmp_path))
    assert "with 1 part and 1 test. Leans towards the claim: 1." in page.text
    assert "holds before the correction, not after it" in page.text
    assert page.source.count('class="mark holds"') == 1  # the legend
    assert page.source.count('class="mark leans">leans towards the claim') == 3  # with the legend
    assert (
        "| C1 | A / B & <more> | leans towards the claim (after the fit: undecided) |"
        in (tmp_path / "claims.md").read_text()
    )
    assert next(csv.DictReader((tmp_path / "claims.csv").open()))["verdict"] == "leans towards the claim"


LITERAL = {**ROW, "id": "C1-literal", "reading": "literal", "reading_of": "C1"}
ALIKE = {**PART, "other": ""}
LITERAL |= {"parts": [{**ALIKE, "verdict": "does not hold", "p": 0.7, "p_adjusted": 0.7}, {**ALIKE, "part": "b"}]}
BOTH = {**ROW, "parts": [ALIKE, {**ALIKE, "part": "b"}]}


def test_other_readings_stand_beside_the_row_and_do_not_count(tmp_path):
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [BOTH, LITERAL, OTHER]}))
    page = Page(write_claims(tmp_path))
    share = "a holds in 1 of 2 readings, turned by literal; b holds in 2 of 2 readings"
    text = (tmp_path / "claims.md").read_text()
    assert f"| a: holds; b: holds | literal: a: does not hold; b: holds. {share} |  | 2.0 |" in text
    assert "| C1-literal |" not in text
    assert "- reading: literal; C1 counts, not this row" in text
    assert page.sections == ["answer", "rows", "field", "rules", "row-C1", "row-C1-literal"]
    assert share in page.text
    counts = "1 of 2 rows were run, with 2 parts and 2 tests. Holds after Holm's correction: 2."
    assert counts in page.text
    assert counts in text
    rows = list(csv.DictReader((tmp_path / "claims.csv").open()))
    assert {(row["id"], row["reading_of"]) for row in rows} == {("C1", ""), ("C1-literal", "C1"), ("C2", "")}


def test_a_row_that_was_not_run_shows_its_other_readings(tmp_path):
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [{**OTHER, "id": "C1"}, LITERAL]}))
    write_claims(tmp_path)
    text = (tmp_path / "claims.md").read_text()
    assert "| C1 | A / B & <more> | not run yet | literal: a: does not hold; b: holds |  |  |" in text
    assert "None of 1 rows was run yet." in text


def test_what_fails_before_the_correction_only_leans_against(tmp_path):
    by_chance = {**PART, "verdict": "does not hold", "p": 0.9, "p_fails": 0.01, "p_fails_adjusted": 0.2}
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [{**ROW, "parts": [by_chance]}]}))
    page = Page(write_claims(tmp_path))
    assert "Leans against the claim: 1." in page.text
    assert "does not hold before the correction, not after it; p of not holding 0.01 (0.2)" in page.text


def test_a_far_setting_and_earlier_attempts_are_said_with_the_verdict(folder):
    (folder / "claims.json").write_text(json.dumps({"rows": [{**ROW, "far": "60 images", "attempts": 2}, OTHER]}))

    page = write_claims(folder).read_text()

    text = (folder / "claims.md").read_text()
    assert "| far from the paper's protocol in | minutes |" in text
    assert "| holds (after the fit: undecided) |  | 60 images | 2.0 |" in text
    assert "- far from the paper's protocol: 60 images" in text
    assert "2.0 minutes of work, seeds 0 to 2 at attempt 2;" in text
    assert '<td class="words"><small>60 images</small></td>' in page


def test_the_choice_that_turns_a_claim_is_named(folder):
    """Of the combinations of what a paper leaves open, which are lines in the section of the row that counts."""
    turned = {**PART, "verdict": "does not hold", "p_fails_adjusted": 0.01, "other": ""}
    counted = {**ROW, "combination": {"ties": "exact", "overlap": "critical"}}
    rows = [counted]
    for ties, overlap in (("exact", "all"), ("threshold", "critical"), ("threshold", "all")):
        own = {"reading": f"{ties}+{overlap}", "reading_of": "C1", "combination": {"ties": ties, "overlap": overlap}}
        rows.append({**ROW, "id": f"C1-{ties}", **own, "parts": [turned if overlap == "all" else PART]})
    (folder / "claims.json").write_text(json.dumps({"rows": rows}))

    page = write_claims(folder).read_text()

    text = (folder / "claims.md").read_text()
    assert "a holds in 2 of 4 readings, turned by overlap (critical: 2 of 2, all: 0 of 2) |" in text
    assert "| ties threshold, overlap all | does not hold |" in text
    assert "## C1-" not in text
    assert "ties threshold, overlap all" in page


def test_the_papers_methods_stand_in_the_field_too(monkeypatch, tmp_path):
    made_record().write(tmp_path / "field.parquet")
    monkeypatch.setattr("fedbench_papers.claims.page.FIELD_RECORDED", tmp_path / "field.parquet")
    monkeypatch.setattr("fedbench_papers.claims.page.OF_PAPERS", {"FedPer": "fedper", "CO-PFL": "co-pfl"})
    (line,) = in_field()
    assert line.startswith("FedPer: in 2 settings where it was judged, better than local training in 1")
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [BOTH]}))
    page = write_claims(tmp_path).read_text()
    assert escape(line) in page
    assert f"- {line}" in (tmp_path / "claims.md").read_text()
