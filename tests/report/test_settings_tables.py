"""The tables of a study over settings."""

import pandas as pd
import pytest

from fedbench.report.settings_study import SettingsStudy
from fedbench.report.settings_tables import (
    AGAINST_LOCAL,
    SCORES,
    WHO_IS_BEST,
    ranked_table,
    sequential_tables,
    settings_tables,
    settings_text,
)
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.settings_file import SettingsFile, settings_of
from fedbench.results.verdict import Bound, Verdict
from tests.report.conftest import add_newcomers, judged, write_comparison
from tests.report.reading import page_of

LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "centralized": 0.95}
ALPHAS = {"partition.alpha": [0.1, 0.5]}


def write_matrix(folder, *levels, **options):
    matrix = SettingsFile({"seeds": [0, 1, 2]}, ALPHAS, settings_of(ALPHAS))
    for setting, own in zip(matrix.settings, levels, strict=False):
        write_comparison(folder / setting.path, own, **options)
    matrix.write(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """fedcac leads in both settings."""
    return write_matrix(tmp_path_factory.mktemp("matrix"), LEVELS, {**LEVELS, "local": 0.82}, spread=0.0)


def test_methods_are_ranked_over_settings_and_seeds_and_references_are_not(folder):
    survey = SettingsStudy.load(folder)
    assert survey.ranking.ranks == {"fedcac": 1.0, "fedper": 2.5, "local": 2.5}
    assert survey.ranking.blocks == 6
    table = ranked_table(survey).lines
    assert [line[0].text for line in table] == ["fedcac", "fedper", "local", "centralized"]
    assert [cell.place for cell in table[0][1:]] == [1, 1, 1]
    assert [line[-1].text for line in table] == ["1.00", "2.50", "2.50", ""]
    assert [cell.place for cell in table[3][1:]] == [0, 0, 0]


def test_a_score_that_lacks_seeds_is_marked(tmp_path):
    survey = SettingsStudy.load(write_matrix(tmp_path, LEVELS, LEVELS, fail={"fedper": (1,)}))
    assert {line[0].text: line[1].text.endswith(" (2 of 3 seeds)") for line in ranked_table(survey).lines}["fedper"]
    assert survey.ranking.blocks == 4


def test_newcomers_of_every_setting_have_a_table(tmp_path):
    folder = write_matrix(tmp_path, {"local": 0.7, "fedper": 0.8}, {"local": 0.7, "fedper": 0.8})
    assert len(settings_tables(SettingsStudy.load(folder))) == 1
    add_newcomers(folder / "settings" / "alpha=0.1" / "final" / "fedper", 0.7)
    survey = SettingsStudy.load(folder)
    lines = [[cell.text for cell in line] for line in settings_tables(survey)[1].lines]
    assert lines == [["fedper", "72.0 ± 2.5", ""], ["local", "", ""]]
    assert "\n\nNewcomers\n" in settings_text(survey)
    assert "newcomers: clients that joined after the last round" in settings_text(survey)
    page_of(folder)
    table = pd.read_csv(folder / "table.csv").set_index(["method", "partition.alpha"])
    assert table["newcomers"].dropna().to_dict() == {("fedper", 0.1): pytest.approx(0.72)}
    assert "**Newcomers**" in (folder / "table.md").read_text()


def cells(survey: SettingsStudy, name: str) -> dict[str, list]:
    return {
        line[0].text: line[1:] for table in sequential_tables(survey) if table.title == name for line in table.lines
    }


def test_tables_of_sequential_tests_show_their_verdicts(tmp_path):
    levels = {"local": 0.6, "fedper": 0.7, "fedcac": 0.8}
    more = {"seeds": range(5), "spread": 0.01, "stopping_rule": {"margin": 2.0, "most": 5}}
    small = {"": {"rounds": 2, "clients": 4}}
    survey = SettingsStudy.load(write_matrix(tmp_path, levels, {**levels, "fedper": 0.5}, asked=small, **more))
    scores, first = cells(survey, SCORES), survey.settings[0].name
    assert [cell.place for cell in scores["fedcac"]] == [1, 1]
    assert [cell.tone for cell in scores["fedper"]] == ["above", "below"]
    assert not any(cell.tied for line in scores.values() for cell in line)
    own = survey.studies[first].sequential_test
    changed_test = SequentialTest(
        look=5,
        over_local={**own.over_local, "fedper": Verdict("fedper", "local", Bound(0.1, -0.01, 0.019, 0.004, 5), 0.02)},
        candidates=["fedcac", "local"],
        out={"fedper": own.out["fedper"]},
        ending="within",
        behind={"local": Bound(-0.005, -0.02, 0.01, 0.004, 5)},
        seeds=own.seeds,
    )
    changed = judged(survey, first, test=changed_test)
    scores = cells(changed, SCORES)
    assert [cell.tone for cell in scores["fedper"]] == ["open", "below"]
    assert [cell.place for cell in scores["fedcac"]] == [0, 1]
    assert [scores[label][0].tied for label in ("fedcac", "local", "fedper")] == [True, True, False]
    assert cells(changed, AGAINST_LOCAL)["fedper"][0].text == "+10.0 (−1.0 to +1.9), equal within 2 points"
    assert cells(changed, WHO_IS_BEST)["local"][0].text == "−0.5 (−2.0 to +1.0), may be better"
    before = judged(survey, *survey.studies, test=SequentialTest(candidates=[*levels], needs=own.seeds))
    assert not any(cell.place or cell.tied for line in cells(before, SCORES).values() for cell in line)
    assert {cell.text for line in cells(before, WHO_IS_BEST).values() for cell in line} == {""}
    doubted = judged(survey, first, ends={"fedper": ["train.lr"]})
    assert [cell.place for cell in cells(doubted, SCORES)["fedcac"]] == [0, 1]
    assert cells(doubted, WHO_IS_BEST)["fedcac"][0].text == "ahead of all, but in doubt"
