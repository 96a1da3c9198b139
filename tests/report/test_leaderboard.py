"""The table of a comparison, and its files."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from fedbench.cli.compare import outcome
from fedbench.report.leaderboard import (
    cost_table,
    first_reaching,
    leaderboard,
    leaderboard_frame,
    leaderboard_legend,
    leaderboard_text,
    model_sizes,
    score_table,
    write_tables,
)
from fedbench.report.page import write_page
from fedbench.report.scores import final
from fedbench.report.study import Study
from fedbench.report.typeset import share_text
from fedbench.results.statistics import share_interval
from fedbench.studies.compare import Comparison
from tests.report.conftest import add_newcomers, write_comparison
from tests.results.tabled import ACCURACY

LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "centralized": 0.95}


@pytest.fixture
def study(make_comparison) -> Study:
    return Study.load(make_comparison(LEVELS, spread=0.0))


def test_the_best_comes_first_and_what_pools_the_data_last(study):
    rows = leaderboard(study)
    assert [row.label for row in rows] == ["fedcac", "fedper", "local", "centralized"]
    assert rows[0].behind is None
    assert rows[2].over_local is None
    assert rows[3].behind is None
    assert rows[1].over_local.interval.mean == pytest.approx(0.1, abs=0.02)
    assert (rows[0].points, rows[0].chosen) == (3, "lr=0.01")


def test_its_files_hold_the_same_numbers(study, tmp_path):
    rows = leaderboard(study)
    write_tables(rows, study.metric, tmp_path)
    table = pd.read_csv(tmp_path / "table.csv").set_index("method")
    assert table.loc["fedper", "over_local"] == pytest.approx(rows[1].over_local.interval.mean)
    assert table.loc["fedper", "best_ahead"] == pytest.approx(rows[1].behind.interval.mean)
    assert table.loc["fedper", "over_local_resolves"] == pytest.approx(rows[1].over_local.interval.half)
    assert table.loc["fedper", "better_off_high"] == pytest.approx(rows[1].over_local.better_off.high)
    assert table.loc["local", "tuned_points"] == 3
    assert (tmp_path / "table.md").read_text().splitlines()[2].startswith("| fedcac | **")
    assert "\\textbf{" in (tmp_path / "table.tex").read_text()


def test_parameters_and_those_that_are_shared_stand_beside_the_other_costs(study):
    assert model_sizes({}) == ("", "")
    several = {"models": {"a": {"parameters": 30, "shared": 10}, "b": {"parameters": 40, "shared": 10}}}
    assert model_sizes(several) == ("30, 40", "10, 10")
    rows = leaderboard(study)
    assert "parameters" not in cost_table(rows)[0]
    heads, lines = cost_table([replace(row, parameters="30", shared="10") for row in rows])
    assert heads[:4] == ["method", "candidates", "parameters", "shared"]
    assert [cell.text for cell in lines[0][2:4]] == ["30", "10"]


def test_the_point_of_the_study_comes_first_and_the_other_one_beside_it(make_comparison, tmp_path):
    tables = {}
    for point, other in (("after_agg", "after_fit"), ("after_fit", "after_agg")):
        study = Study.load(make_comparison(LEVELS, name=point, spread=0.0, point=point))
        rows = leaderboard(study)
        write_tables(rows, study.metric, tmp_path)
        tables[point] = pd.read_csv(tmp_path / "table.csv").set_index("method")
        assert set(tables[point]["point"]) == {point}
        assert score_table(rows, study.metric)[0][4] == other.replace("_", " ")
    first, second = tables.values()
    assert first["after_fit"].to_dict() == pytest.approx(second["mean"].to_dict())
    assert second["after_agg"].to_dict() == pytest.approx(first["mean"].to_dict())
    assert "test accuracy in % after local training; " in leaderboard_text(rows, study.metric)


def test_the_rank_counts_competitors_only(study):
    assert {row.label: row.rank for row in leaderboard(study)} == {
        "fedcac": 1,
        "fedper": 2,
        "local": 3,
        "centralized": None,
    }


def test_the_share_that_is_better_off_stays_within_0_and_100(make_comparison):
    study = Study.load(make_comparison({"local": 0.7, "fedcac": 0.72}, spread=0.05, seeds=(0, 1)))
    rows = leaderboard(study)
    better = rows[0].over_local.better_off
    assert 0 <= better.low < better.mean < better.high <= 1
    shown = leaderboard_text(rows, study.metric)
    assert f" % ({100 * better.low:.0f} to {100 * better.high:.0f})" in shown


def test_columns_of_spread_and_of_all_samples(study):
    rows = leaderboard(study)
    heads, lines = score_table(rows, study.metric)
    assert heads[:4] == ["method", "score", "sd", "pooled"]
    texts = [cell.text for cell in lines[0]]
    assert texts[2:4] == [f"{100 * rows[0].score.sd:.1f}", f"{100 * rows[0].pooled:.1f}"]
    assert rows[0].pooled == pytest.approx(rows[0].score.mean, abs=0.01)


def test_how_clients_differ_is_shown_with_its_meaning(study, tmp_path):
    rows = leaderboard(study)
    last = study.last_rows("fedcac")
    heads, lines = score_table(rows, study.metric)
    shown = dict(zip(heads, (cell.text for cell in lines[0]), strict=True))
    half = 4.302653 * last["test_worst_tenth"].sem()  # t of 2 degrees of freedom
    assert shown["worst client"] == f"{100 * last['test_worst_tenth'].mean():.1f} ± {100 * half:.1f}"
    assert shown["client sd"] == f"{100 * last['test_spread'].mean():.1f}"
    assert "client sd: standard deviation over a seed's clients" in leaderboard_text(rows, study.metric)
    write_tables(rows, study.metric, tmp_path)
    table = pd.read_csv(tmp_path / "table.csv").set_index("method")
    assert table.loc["fedcac", "worst_tenth_high"] == pytest.approx(last["test_worst_tenth"].mean() + half, abs=1e-7)
    assert table.loc["fedcac", "spread"] == pytest.approx(last["test_spread"].mean())


def test_columns_that_nobody_fills_are_left_out(make_comparison):
    lone = Study.load(make_comparison(LEVELS, seeds=(0,)))
    heads, lines = score_table(leaderboard(lone), lone.metric)
    assert not {"sd", "p (adjusted)"} & set(heads)
    assert {len(line) for line in lines} == {len(heads)}


def test_text_says_what_cannot_be_told_apart(make_comparison):
    close = Study.load(make_comparison({"local": 0.6, "fedper": 0.801, "fedcac": 0.8}, spread=0.08))
    rows, metric = leaderboard(close), close.metric
    text = leaderboard_text(rows, metric).splitlines()
    assert " = " in text[3]
    assert " = " not in text[2]
    lines = score_table(rows, metric)[1]
    assert [line[1].tied for line in lines][:2] == [False, True]
    assert [line[1].place for line in lines] == [1, 2, 0]


@pytest.mark.parametrize("lost", ["fedper", "centralized"])
def test_what_failed_is_named_with_its_reason_and_who_lacks_seeds_is_marked(lost, make_comparison, tmp_path):
    folder = make_comparison(LEVELS, spread=0.0, fail={lost: (0, 1, 2), "fedcac": (1,)})
    study = Study.load(folder)
    rows = leaderboard(study)
    left = [label for label in ("fedcac", "fedper", "local", "centralized") if label != lost]
    assert [row.label for row in rows] == left
    assert len(rows[0].over_local.interval.values) == 2
    named = [line[0].text for line in score_table(rows, study.metric, study.failures)[1]]
    assert named == ["fedcac (2 of 3 seeds)", *left[1:], lost]
    write_page(folder)
    table = Comparison(folder).table.set_index("method")
    assert table[["seeds", "failed_seeds"]].loc[["fedcac", "local"]].to_numpy().tolist() == [[2, 1], [3, 0]]
    assert table["status"].to_dict() == {**dict.fromkeys(left, "done"), lost: "failed"}
    assert set(table["error"].dropna().index) == {"fedcac", lost}
    assert table.loc[lost, "error"] == "RuntimeError: boom"
    assert math.isnan(table.loc[lost, "mean"])
    assert f"{lost} failed: RuntimeError: boom" in (folder / "table.md").read_text()
    page = (folder / "report.html").read_text()
    assert '<td title="RuntimeError: boom">failed</td>' in page
    assert f"{lost} failed: RuntimeError: boom." in page


def test_where_all_failed_there_is_a_table_of_reasons(make_comparison, capsys):
    folder = make_comparison({"local": 0.6, "fedcac": 0.9}, fail={"local": (0,), "fedcac": (0,)}, seeds=(0,))
    write_page(folder)
    assert Comparison(folder).table["status"].tolist() == ["failed", "failed"]
    text, code = outcome(folder)
    assert code == 1
    assert "fedcac  failed" in text
    assert "Every method failed." in text.splitlines()


def test_when_the_level_of_local_is_reached(study):
    number, sent = first_reaching(study, "fedcac", study.final_score("local"))
    assert 1 <= number < 6
    assert sent == pytest.approx(number * sent / number)
    assert first_reaching(study, "local", 0.99) is None
    rows = {row.label: row for row in leaderboard(study)}
    assert rows["fedcac"].target_round == number


@pytest.mark.parametrize("alone", [0.6, 0.9])
def test_a_pair_has_one_p_wherever_it_is_shown(make_comparison, alone):
    """The best and local are in both families; whether local is the best or another one."""
    levels = {"local": alone, "fedper": 0.8, "fedcac": 0.79, "ditto": 0.78, "centralized": 0.95}
    rows = {row.label: row for row in leaderboard(Study.load(make_comparison(levels)))}
    best, *others = [label for label in rows if label != "centralized"]
    assert (best == "local") == (alone == 0.9)
    pairs = [(rows[label].over_local, rows[label].behind) for label in others] if best == "local" else []
    pairs += [] if best == "local" else [(rows[best].over_local, rows["local"].behind)]
    assert pairs
    for over, behind in pairs:
        assert over.p == pytest.approx(behind.p)
        assert over.p_adjusted == behind.p_adjusted >= over.p
        assert over.sign == -behind.sign or best != "local"


def test_newcomers_are_a_column_where_there_are_any(make_comparison, tmp_path):
    folder = make_comparison({"local": 0.6, "fedper": 0.7})
    assert "newcomers" not in score_table(leaderboard(Study.load(folder)), ACCURACY)[0]
    assert "newcomers" not in leaderboard_frame(leaderboard(Study.load(folder)))
    add_newcomers(folder / "final" / "fedper", 0.7)
    rows = leaderboard(Study.load(folder))
    heads, lines = score_table(rows, ACCURACY)
    assert [line[heads.index("newcomers")].text for line in lines] == ["72.0 ± 2.5", ""]
    assert leaderboard_frame(rows).set_index("method")["newcomers"]["fedper"] == pytest.approx(0.72)
    assert "newcomers: clients that joined after the last round" in leaderboard_legend(rows, ACCURACY)


def test_the_common_test_set_is_a_column_where_it_was_recorded(make_comparison):
    folder = make_comparison({"local": 0.6, "fedper": 0.7})
    assert "common" not in leaderboard_frame(leaderboard(Study.load(folder)))
    path = folder / "final" / "fedper" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "common_accuracy": 0.4 + line["seed"] / 100}) + "\n" for line in lines))
    rows = leaderboard(Study.load(folder))
    heads, cells = score_table(rows, ACCURACY)
    assert [line[heads.index("common test")].text.partition(" ")[0] for line in cells] == ["41.0", ""]
    assert leaderboard_frame(rows).set_index("method")["common"]["fedper"] == pytest.approx(0.41)
    assert "common test: a client's model on the test samples of all" in leaderboard_legend(rows, ACCURACY)
    table = final(Study.load(folder))
    assert "common test" in table.heads
    assert any("Common test: " in note for note in table.notes)


def test_a_share_without_spread_over_seeds_has_no_interval():
    assert share_text(share_interval([0.5, 0.6, 0.7])).startswith("60 % (")
    assert share_text(share_interval([0.7, 0.7, 0.7])) == "70 %"


def test_a_doubt_stands_beside_its_row_and_a_note_does_not(tmp_path):
    folder = write_comparison(tmp_path, {"local": 0.7, "fedper": 0.8})
    line = "fedper: there is no head, so this is fedavg"
    file = folder / "final" / "fedper" / "summary.json"
    said = {"warnings": [line, "column age is a feature, so this is a note"], "doubts": [line]}
    file.write_text(json.dumps(json.loads(file.read_text()) | said))
    study = Study.load(folder)
    text = leaderboard_text(leaderboard(study), study.metric)
    assert "fedper [1]" in text
    assert f"[1] {line}" in text
    assert "local [" not in text
    assert "column age" not in text
