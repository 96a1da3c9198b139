"""Rows that are run, judged and written down; what is done is not done again."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench.results.plan import Entry, Plan
from fedbench_papers.claims import study
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.page import as_markdown
from fedbench_papers.claims.record import RECORDED, ClaimsRecord
from fedbench_papers.claims.rows import load_rows
from fedbench_papers.claims.study import (
    NOT_RUN,
    RowRuns,
    adjust_p_values,
    claims,
    is_finished,
    read_entries,
    row_entry,
    table_of,
    verdict_line,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("claims")]
SMALL = {"data.name": "digits", "model.name": "mlp", "model.hidden": [16], "rounds": 5, "partition.test_size": 20}
"""F6 in seconds: one arm, five seeds, and traces that are judged."""


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """A results folder in which a row has been tested."""
    folder = tmp_path_factory.mktemp("claims") / "out"
    claims(["F6"], out=folder, keys=SMALL, trials=1)
    return folder


def test_a_row_is_run_and_judged(out):
    entry = read_entries(out / "claims")["F6"]
    assert entry["status"] == "judged"
    assert [part["part"] for part in entry["parts"]] == ["a", "b"]
    assert all(part["verdict"] for part in entry["parts"])
    assert entry["runs"] == 5
    assert entry["made"] == date.today().isoformat()
    assert entry["minutes"] > 0
    assert entry["levels"]["fedcac"]["steps"] == 6
    assert 10 < entry["levels"]["fedcac"]["agg"] <= 100
    assert len(entry["fingerprint"]) == 8
    assert entry["command"] == "fedbench claims --only F6"


def test_page_and_tables_are_there_with_every_row(out):
    page = (out / "claims" / "report.html").read_text()
    table = (out / "claims" / "claims.md").read_text()
    assert "related classes" in page
    assert (out / "claims" / "F6" / "report.html").exists()
    assert table.count(f"| {NOT_RUN} |") == 39
    assert table.count(f"| {NOT_RUN} | literal: {NOT_RUN} |") == 5


def test_runs_that_are_there_are_taken(out):
    before = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    found = claims(["F6"], out=out, keys=SMALL, trials=1)
    assert found.table["id"].nunique() == 40 + 11 + 10
    assert str(found).endswith(f"\n\nreport: {found.report}")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")} == before


def test_rows_whose_runs_another_uses_are_announced_before_theirs(tmp_path, monkeypatch):
    """The progress of each begins anew; else the second one's time left is told by the first one's runs."""
    calls: list[str] = []
    monkeypatch.setattr(study, "run_row", lambda row, *rest: calls.append(f"run {row.id}"))
    with pytest.raises(ConfigError):  # nothing was run
        claims(["X2"], out=tmp_path, keys=SMALL, on_row=lambda name: calls.append(f"announce {name}"))
    assert calls == ["announce C5", "run C5", "announce F9", "run F9", "announce X2", "run X2"]


def test_a_row_whose_runs_are_missing_says_so(out, tmp_path):
    folder = tmp_path / "claims"
    plan = Plan.read(out / "claims" / "F6")
    (folder / "F6").mkdir(parents=True)
    broken = [*plan.entries[1:], type(plan.entries[0])("final", "fedcac", {}, 0, "nowhere", "failed", "no memory")]
    plan.entries = broken
    plan.write(folder / "F6")
    assert not is_finished(folder / "F6")
    entry = row_entry(load_rows()["F6"], folder)
    assert entry["status"] == "failed: fedcac seed 0: no memory"
    assert verdict_line(entry) == entry["status"]


def test_mistakes_are_told_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="unknown row"):
        claims(["F6", "F66"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_data_that_are_not_there_are_told_before_the_first_row(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        claims(["F8", "M3"], sources={"pacs": "folder:nowhere", "cifar10_jpeg": "digits"}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def part(verdict: str, p: float | None, counts: bool = True) -> dict:
    return {"part": "a", "verdict": verdict, "p": p, "judged": counts}


def test_p_values_are_adjusted_for_all_that_was_tested():
    parts = [part("holds", 0.01), part("undecided", 0.2), part("does not hold", 0.9), part("holds", 0.02)]
    parts += [part("holds", 0.001, False), part("holds", None)]
    parts[1]["p_fails"], parts[2]["p_fails"] = 0.5, 0.02
    adjust_p_values([(own, 1) for own in parts])
    assert [p["p_fails_adjusted"] for p in parts] == [None, pytest.approx(0.5), pytest.approx(0.04), None, None, None]
    assert [p["p_adjusted"] for p in parts] == [
        pytest.approx(0.04),
        pytest.approx(0.4),
        pytest.approx(0.9),
        pytest.approx(0.06),
        None,
        None,
    ]


def test_every_attempt_is_paid_for():
    """Three looks at other seeds could each have given a verdict."""
    parts = [part("holds", 0.01), part("undecided", 0.4)]

    adjust_p_values([(parts[0], 3), (parts[1], 3)])

    assert [own["p_adjusted"] for own in parts] == [pytest.approx(0.06), 1.0]


def test_a_row_that_is_new_does_not_lose_the_others():
    rows = load_rows()
    known = {"C1": {"status": "judged", "parts": [part("holds", 0.01)]}}
    table = json.loads(json.dumps(table_of(rows, {**known, "F6": {"status": "judged", "parts": []}}, Conditions())))
    by_id = {row["id"]: row for row in table}
    assert list(by_id) == list(rows)
    assert by_id["C1"]["parts"][0]["verdict"] == "holds"
    assert by_id["X4"]["status"] == NOT_RUN


def test_other_readings_have_a_correction_of_their_own():
    known = {name: {"status": "judged", "parts": [part("holds", 0.03)]} for name in ("C1", "C1-literal", "F6")}
    table = {row["id"]: row for row in table_of(load_rows(), known, Conditions())}
    adjusted = {name: table[name]["parts"][0]["p_adjusted"] for name in known}
    assert adjusted == {"C1": pytest.approx(0.06), "F6": pytest.approx(0.06), "C1-literal": pytest.approx(0.03)}
    assert [table[name]["reading_of"] for name in known] == ["", "C1", ""]
    assert table["C1-literal"]["command"] == "fedbench claims --only C1-literal"


def test_a_row_is_run_with_its_readings_if_they_are_asked_for(tmp_path, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(study, "run_row", lambda row, *rest: calls.append(row.id))
    monkeypatch.setattr(study, "row_entry", lambda row, folder: {"status": "judged", "parts": []})
    monkeypatch.setattr(study, "check_data", lambda rows: None)
    claims(["C1", "F6"], out=tmp_path / "one")
    assert calls == ["C1", "F6"]
    calls.clear()
    claims(["C1", "F6"], out=tmp_path / "all", readings="all")
    assert calls == ["C1", "C1-literal", "F6"]


def test_recorded_verdicts_are_of_these_rows_and_in_their_words():
    docs, recorded = Path(__file__).parents[3] / "papers" / "docs", ClaimsRecord.read(RECORDED)
    again = table_of(load_rows(), recorded.entries, recorded.conditions)
    assert json.loads(json.dumps(again)) == recorded.rows
    assert (docs / "claims.md").read_text().startswith(as_markdown(recorded))


def test_the_best_of_tuned_arms_is_the_best_on_validation(tmp_path):
    scores = {"a": [0.5, 0.7], "b": [0.6, None]}
    tried = [
        Entry("candidate", label, {"train.lr": lr}, 90, "x", "done" if val else "failed", None, {"val": val})
        for label, own in scores.items()
        for lr, val in zip((0.1, 0.2), own, strict=True)
    ]
    plan = Plan("claims", None, {}, [*tried, *(Entry("final", label, {}, 0, "x") for label in scores)])
    found = RowRuns(load_rows()["F9"], {"F9": plan}, tmp_path)
    assert found.pick(["a", "b"]) == "a"
    assert RowRuns(load_rows()["X4"], {"F9": plan}, tmp_path).pick(["F9 b", "F9 a"]) == "F9 a"


def test_the_best_on_a_choosing_seed_is_found_on_that_seed(out):
    row = replace(load_rows()["F6"], choose=4)
    found = RowRuns.of(row, out / "claims")
    assert found.choosing_runs["fedcac"].clients["seed"].unique().tolist() == [4]
    assert found.pick(["fedcac"]) == "fedcac"
