"""The tables of a comparison, and its files."""

import json

import pandas as pd
import pytest

from fedbench.report.leaderboard import leaderboard
from fedbench.report.leaderboard_table import (
    cost_table,
    leaderboard_frame,
    leaderboard_text,
    model_sizes,
    score_table,
)
from fedbench.report.scores import final
from fedbench.report.study import Study
from fedbench.report.typeset import share_text
from fedbench.results.statistics import share_interval
from tests.report.conftest import add_newcomers, write_comparison

LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "centralized": 0.95}


@pytest.fixture
def study(make_comparison) -> Study:
    return Study.load(make_comparison(LEVELS, spread=0.0))


def shown(study: Study) -> dict[str, dict[str, str]]:
    """The texts of the scores by method and head."""
    table = score_table(study, leaderboard(study))
    return {line[0].text: dict(zip(table.heads, (cell.text for cell in line), strict=True)) for line in table.lines}


def in_files(study: Study) -> pd.DataFrame:
    return leaderboard_frame(study, leaderboard(study)).set_index("method")


def test_parameters_and_those_that_are_shared_stand_beside_the_other_costs(study):
    models = {"models": {"a": {"parameters": 30, "shared": 10}, "b": {"parameters": 40, "shared": 10}}}
    assert (model_sizes({}, "parameters"), model_sizes(models, "parameters")) == ("", "30, 40")
    assert "parameters" not in cost_table(leaderboard(study)).heads
    for path in study.folder.glob("final/*/environment.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | models))
    table = cost_table(leaderboard(Study.load(study.folder)))
    assert table.heads[:4] == ["method", "candidates", "parameters", "shared"]
    assert [cell.text for cell in table.lines[0][2:4]] == ["30, 40", "10, 10"]


def test_the_point_of_the_study_comes_first_and_the_other_one_beside_it(make_comparison):
    first, second = (
        Study.load(make_comparison(LEVELS, name=point, spread=0.0, point=point)) for point in ("after_agg", "after_fit")
    )
    assert in_files(first)["after_fit"].to_dict() == pytest.approx(in_files(second)["mean"].to_dict())
    assert in_files(second)["after_agg"].to_dict() == pytest.approx(in_files(first)["mean"].to_dict())
    assert "after fit" in shown(first)["local"]
    assert "after agg" in shown(second)["local"]
    assert "test accuracy in % after local training; " in leaderboard_text(second, leaderboard(second))


def test_the_share_that_is_better_off_stays_within_0_and_100(make_comparison):
    study = Study.load(make_comparison({"local": 0.7, "fedcac": 0.72}, spread=0.05, seeds=(0, 1)))
    rows = leaderboard(study)
    better = rows[0].over_local.better_off
    assert 0 <= better.low < better.mean < better.high <= 1
    text = leaderboard_text(study, rows)
    assert f" % ({100 * better.low:.0f} to {100 * better.high:.0f})" in text


def test_columns_that_nobody_fills_are_left_out(make_comparison):
    lone = Study.load(make_comparison(LEVELS, seeds=(0,)))
    assert not {"sd", "p (adjusted)", "newcomers", "common test"} & set(shown(lone)["local"])
    assert not {"newcomers", "common"} & set(in_files(lone))


def test_text_says_what_cannot_be_told_apart(make_comparison):
    close = Study.load(make_comparison({"local": 0.6, "fedper": 0.801, "fedcac": 0.8}, spread=0.08))
    rows = leaderboard(close)
    text = leaderboard_text(close, rows).splitlines()
    assert " = " in text[3]
    assert " = " not in text[2]
    lines = score_table(close, rows).lines
    assert [line[1].tied for line in lines][:2] == [False, True]
    assert [line[1].place for line in lines] == [1, 2, 0]


def test_newcomers_and_the_common_test_set_are_columns_where_they_were_recorded(make_comparison):
    folder = make_comparison({"local": 0.6, "fedper": 0.7})
    add_newcomers(folder / "final" / "fedper", 0.7)
    path = folder / "final" / "fedper" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "common_accuracy": 0.4 + line["seed"] / 100}) + "\n" for line in lines))
    study = Study.load(folder)
    texts, numbers = shown(study), in_files(study)
    assert [texts[label]["newcomers"] for label in ("fedper", "local")] == ["72.0 ± 2.5", ""]
    assert numbers["newcomers"]["fedper"] == pytest.approx(0.72)
    assert texts["fedper"]["common test"].startswith("41.0 ")
    assert texts["local"]["common test"] == ""
    assert numbers["common"]["fedper"] == pytest.approx(0.41)
    legend = "; ".join(score_table(study, leaderboard(study)).notes)
    assert "newcomers: clients that joined after the last round" in legend
    assert "common test: a client's model on the test samples of all" in legend
    table = final(study)
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
    text = leaderboard_text(study, leaderboard(study))
    assert "fedper [1]" in text
    assert f"[1] {line}" in text
    assert "local [" not in text
    assert "column age" not in text
