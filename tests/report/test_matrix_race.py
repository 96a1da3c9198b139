"""A study over settings with races says in words, marks and colours what the verdicts of its settings say."""

import re
from copy import copy
from dataclasses import replace

import pandas as pd
import pytest

from fedbench.report.leaderboard import leaderboard
from fedbench.report.matrix import Survey, matrix_answer, matrix_notes, matrix_text, write_matrix
from fedbench.report.matrix_race import AGAINST_LOCAL, SCORES, WHO_IS_BEST, race_tables
from fedbench.results.race import Bound, Race, VerdictOverLocal
from tests.report.reading import Page
from tests.report.test_matrix import write_matrix as write_settings

LEVELS = {"local": 0.6, "fedper": 0.7, "fedcac": 0.8}
SEEDS = dict.fromkeys(LEVELS, 5)
FIRST = "alpha=0.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """fedcac wins in both settings; fedper is worse than local training in the second."""
    small = {"": {"rounds": 2, "clients": 4}}
    more = dict(seeds=range(5), spread=0.01, race={"margin": 2.0, "most": 5}, asked=small)
    return write_settings(tmp_path_factory.mktemp("matrix"), LEVELS, {**LEVELS, "fedper": 0.5}, **more)


@pytest.fixture(scope="module")
def survey(folder) -> Survey:
    return Survey.load(folder)


def judged(survey: Survey, *settings: str, race: Race | None = None, **plan) -> Survey:
    """The same with another race, or another plan, in these settings."""
    studies, boards = dict(survey.studies), dict(survey.boards)
    for name in settings:
        studies[name] = study = copy(studies[name])
        study.plan = replace(study.plan, **plan)
        study.__dict__["race"] = race or study.race
        boards[name] = {row.label: row for row in leaderboard(study)}
    return replace(survey, studies=studies, boards=boards)


def cells(survey: Survey, name: str) -> dict[str, list]:
    return {line[0].text: line[1:] for line in race_tables(survey)[name]}


def test_the_answer_is_that_of_the_verdicts(survey):
    assert matrix_answer(survey) == "In alpha=0.1 and alpha=0.5 fedcac is the best."
    better, worse, promise = matrix_notes(survey)
    assert better == "Better than local training: fedcac in every setting; fedper in alpha=0.1."
    assert worse == "Worse than local training: fedper in alpha=0.5."
    assert promise.startswith("95\u00a0% for each setting: ")
    assert "of all 2 together with at most 10\u00a0%" in promise


def test_methods_with_the_same_verdict_in_the_same_settings_are_named_together(survey):
    own = survey.studies[FIRST].race
    told = {**own.over_local, "fedper": own.over_local["fedcac"]}
    both = judged(survey, *survey.studies, race=replace(own, over_local=told))
    assert matrix_notes(both)[0] == "Better than local training: fedcac and fedper in every setting."


def test_marks_and_colours_follow_verdicts(survey):
    scores = cells(survey, SCORES)
    assert [cell.place for cell in scores["fedcac"]] == [1, 1]
    assert [cell.place for cell in scores["fedper"]] == [0, 0]
    assert [cell.tone for cell in scores["fedper"]] == ["above", "below"]
    assert not any(cell.tied for line in scores.values() for cell in line)
    assert {cell.text[-4:] for line in scores.values() for cell in line} == {" (5)"}
    own = survey.studies[FIRST].race
    told = {**own.over_local, "fedper": VerdictOverLocal("equal", Bound(0.1, -0.01, 0.019, 0.004, 5))}
    behind = {"local": Bound(-0.005, -0.02, 0.01, 0.004, 5)}
    out = {"fedper": own.out["fedper"]}
    changed = judged(
        survey,
        FIRST,
        race=Race(5, told, {}, {}, {}, ["fedcac", "local"], out, "within", behind, {}, SEEDS),
    )
    scores = cells(changed, SCORES)
    assert [cell.tone for cell in scores["fedper"]] == ["open", "below"]
    assert [cell.place for cell in scores["fedcac"]] == [0, 1]
    assert [scores[label][0].tied for label in ("fedcac", "local", "fedper")] == [True, True, False]
    assert cells(changed, AGAINST_LOCAL)["fedper"][0].text == "+10.0 (−1.0 to +1.9), equal within 2 points"
    assert cells(changed, WHO_IS_BEST)["local"][0].text == "−0.5 (−2.0 to +1.0), may be better"
    assert matrix_answer(changed) == (
        "In alpha=0.1 fedcac is best or within 2 points of the best, and local may be better; "
        "in alpha=0.5 fedcac is the best."
    )


def test_only_simultaneous_intervals_stand_on_the_page(folder, survey):
    page = Page(write_matrix(folder))
    race = survey.studies["alpha=0.5"].race
    ends = [100 * end for end in (race.over_local["fedper"].bound.low, race.over_local["fedper"].bound.high)]
    assert f"({ends[0]:+.1f} to {ends[1]:+.1f}), worse".replace("-", "\u2212") in page.text
    assert not re.search("±|Friedman|Wilcoxon|rank|Holm|p [=<]", page.text)
    assert "Colours show what was decided" in page.text
    assert "partition.alpha: 0.1 and 0.5; margin 2 points, at most 5 seeds" in page.text
    assert "settings/alpha=0.1/report.html" in page.references
    table = pd.read_csv(folder / "table.csv")
    assert {"low", "high", "mean_rank", "tied_with_best"}.isdisjoint(table)
    row = table[(table["setting"] == "alpha=0.5") & (table["method"] == "fedper")].iloc[0]
    assert (row["race_against_local"], row["race_who_is_best"]) == ("worse", "not the best")
    assert row["race_over_local_low"] == pytest.approx(ends[0] / 100)
    assert (folder / "table.md").read_text().count("| method | alpha=0.1 | alpha=0.5 |") == 3
    assert (folder / "table.tex").read_text().count(r"\begin{tabular}{lrr}") == 3


def test_the_terminal_says_the_same(survey):
    text = matrix_text(survey)
    assert [line for line in text.splitlines() if line in (SCORES, AGAINST_LOCAL, WHO_IS_BEST)] == [
        SCORES,
        AGAINST_LOCAL,
        WHO_IS_BEST,
    ]
    assert "= may be the best" in text


def test_what_is_not_decided_says_how_it_goes_on(survey):
    bound = Bound(0.1, -0.1, 0.3, 0.05, 5)
    race = Race(
        5, {}, {"fedper": bound}, {}, {}, ["fedcac", "fedper"], {}, None, {"fedper": bound}, {"fedper": 8}, SEEDS
    )
    changed = judged(survey, FIRST, race=race)
    assert matrix_answer(changed).startswith("In alpha=0.1 it is not decided yet: fedcac and fedper may be the best; ")
    assert (
        "Stopped in alpha=0.1 before it was decided; the same command continues with 8 seeds of 1 method."
        in matrix_notes(changed)
    )
    assert cells(changed, AGAINST_LOCAL)["fedper"][0].text == "+10.0 (−10.0 to +30.0), open"


def test_before_the_first_look_nothing_is_said(survey):
    race = Race(candidates=["fedcac", "fedper", "local"], needs=SEEDS)
    changed = judged(survey, *survey.studies, race=race)
    assert matrix_answer(changed) == "In alpha=0.1 and alpha=0.5 nothing is decided yet."
    assert matrix_notes(changed) == []
    assert not any(cell.place or cell.tied for line in cells(changed, SCORES).values() for cell in line)
    assert {cell.text for line in cells(changed, WHO_IS_BEST).values() for cell in line} == {""}


def test_no_winner_where_a_rival_may_not_be_at_its_best(survey):
    changed = judged(survey, FIRST, ends={"fedper": ["train.lr"]})
    said = matrix_answer(changed)
    assert said.startswith("In alpha=0.1 fedcac beats all others, but the best candidate of fedper is at the edge")
    assert [cell.place for cell in cells(changed, SCORES)["fedcac"]] == [0, 1]
    assert cells(changed, WHO_IS_BEST)["fedcac"][0].text == "ahead of all, but in doubt"


def test_a_doubt_about_a_gain_over_local_stands_beside_it(survey):
    changed = judged(survey, *survey.studies, ends={"local": ["train.lr"]})
    notes = " ".join(matrix_notes(changed))
    assert "Better than local training" not in notes
    assert "fedper in alpha=0.1: better than local training, but the best candidate of local is at the edge" in notes
