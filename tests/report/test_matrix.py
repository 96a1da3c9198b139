"""A study over settings: its table, its ranks and its page."""

import pandas as pd
import pytest

from fedbench.report.matrix import (
    Survey,
    matrix_answer,
    matrix_lines,
    matrix_notes,
    matrix_text,
    matrix_warnings,
    newcomer_lines,
)
from fedbench.results.matrix import Matrix, settings_of
from tests.report.conftest import add_newcomers, write_comparison
from tests.report.reading import page_of

LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "centralized": 0.95}
BATCHES = {"evaluate": {"accuracy": "batches", "batch_size": 9}}
ALPHAS = {"partition.alpha": [0.1, 0.5]}


def write_matrix(folder, *levels, **options):
    matrix = Matrix({"seeds": [0, 1, 2]}, ALPHAS, settings_of(ALPHAS))
    for setting, own in zip(matrix.settings, levels, strict=False):
        write_comparison(folder / setting.path, own, **options)
    matrix.write(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """fedcac leads in both settings."""
    return write_matrix(tmp_path_factory.mktemp("matrix"), LEVELS, {**LEVELS, "local": 0.82}, spread=0.0)


def test_methods_are_ranked_over_settings_and_seeds_and_references_are_not(folder):
    survey = Survey.load(folder)
    assert survey.ranking.ranks == {"fedcac": 1.0, "fedper": 2.5, "local": 2.5}
    assert survey.ranking.blocks == 6
    table = matrix_lines(survey)
    assert [line[0].text for line in table] == ["fedcac", "fedper", "local", "centralized"]
    assert [cell.place for cell in table[0][1:]] == [1, 1, 1]
    assert [line[-1].text for line in table] == ["1.00", "2.50", "2.50", ""]
    assert [cell.place for cell in table[3][1:]] == [0, 0, 0]


def test_its_page_leads_to_the_pages_of_its_settings_and_shows_the_ranks(folder):
    page = page_of(folder)
    assert set(page.charts) == {"ranks", "over-alpha", "middle-gains", "improvement", "profiles"}
    assert "settings/alpha=0.1/report.html" in page.references
    assert "alpha=0.5" in page.text
    assert "Colours show what was decided" in page.text
    names = [mark["text"] for mark in page.charts["ranks"]["layout"]["annotations"]]
    assert sorted(names) == ["fedcac 1.00", "fedper 2.50", "local 2.50"]


def test_its_tables_hold_every_setting(folder):
    page_of(folder)
    table = pd.read_csv(folder / "table.csv")
    assert len(table) == 8
    assert set(table["partition.alpha"]) == {0.1, 0.5}
    assert (folder / "table.md").read_text().startswith("| method | alpha=0.1 | alpha=0.5 | rank |")
    text = (folder / "table.tex").read_text()
    assert "= cannot be told from the best" in text.splitlines()[0]
    assert "\\underline" in text
    assert matrix_text(Survey.load(folder)).splitlines()[2].startswith("fedcac")


def test_nobody_is_ahead_where_blocks_are_too_few(folder):
    survey = Survey.load(folder)
    assert matrix_answer(survey).endswith("1.00 of 3; it cannot be told from fedper and local.")
    assert "Friedman's test over 6 blocks" in matrix_notes(survey)[0]
    assert "With so few blocks no two of 3 methods can be told apart" in matrix_notes(survey)[1]


def test_a_winner_is_named_where_it_leads_often_enough(tmp_path):
    levels = {"local": 0.5, "fedper": 0.8}
    survey = Survey.load(write_matrix(tmp_path, levels, levels, spread=0.0, seeds=tuple(range(4))))
    assert survey.ranking.groups == []
    assert matrix_answer(survey) == (
        "fedper has the best mean rank over 2 settings: 1.00 of 2, ahead of local (2.00, p = 0.008)."
    )


@pytest.mark.parametrize(
    ("more", "doubt"),
    [
        (
            {"ends": {"local": ["train.lr"]}},
            "the best candidate of local is at the edge of its search range (train.lr = 0.01)",
        ),
        (
            {"asked": {"local": BATCHES}},
            "fedper is scored by the mean over samples and local by the mean over batches of 9",
        ),
        ({"fail": {"ditto": (0, 1, 2, 3)}}, "ditto failed"),
    ],
)
def test_no_winner_where_a_setting_has_a_doubt(tmp_path, more, doubt):
    levels = {"local": 0.5, "fedper": 0.8} | ({"ditto": 0.6} if "fail" in more else {})
    survey = Survey.load(write_matrix(tmp_path, levels, levels, spread=0.0, seeds=tuple(range(4)), **more))
    assert survey.ranking.groups == []
    said = matrix_answer(survey)
    assert f"1.00 of 2; but in alpha=0.1 and alpha=0.5 {doubt}" in said
    assert said.endswith(", so no winner is named.")


def test_a_score_that_lacks_seeds_is_marked(tmp_path):
    survey = Survey.load(write_matrix(tmp_path, LEVELS, LEVELS, fail={"fedper": (1,)}))
    assert {line[0].text: line[1].text.endswith(" (2 of 3 seeds)") for line in matrix_lines(survey)}["fedper"]
    assert survey.ranking.blocks == 4


def test_what_is_missing_is_said(tmp_path):
    survey = Survey.load(write_matrix(tmp_path, LEVELS))
    assert [setting.name for setting in survey.settings] == ["alpha=0.1"]
    assert matrix_warnings(survey) == ["alpha=0.5: nothing was evaluated yet."]
    assert page_of(tmp_path).answer


def test_newcomers_of_every_setting_have_a_table(tmp_path):
    folder = write_matrix(tmp_path, {"local": 0.7, "fedper": 0.8}, {"local": 0.7, "fedper": 0.8})
    assert newcomer_lines(Survey.load(folder)) == []
    add_newcomers(folder / "settings" / "alpha=0.1" / "final" / "fedper", 0.7)
    survey = Survey.load(folder)
    lines = [[cell.text for cell in line] for line in newcomer_lines(survey)]
    assert lines == [["fedper", "72.0 ± 2.5", ""], ["local", "", ""]]
    assert "\n\nNewcomers\n" in matrix_text(survey)
    assert "newcomers: clients that joined after the last round" in matrix_text(survey)
    assert "Newcomers" in page_of(folder).text
    table = pd.read_csv(folder / "table.csv").set_index(["method", "partition.alpha"])
    assert table["newcomers"].dropna().to_dict() == {("fedper", 0.1): pytest.approx(0.72)}
    assert "**Newcomers**" in (folder / "table.md").read_text()
