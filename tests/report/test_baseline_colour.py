"""The colours of tables: where a method stands beside training alone and on the pooled data."""

import pytest

from fedbench.report.baseline_colour import TONE_WORDS, baseline_tone
from fedbench.report.leaderboard import laid_out, leaderboard
from fedbench.report.matrix import Survey
from fedbench.report.matrix import matrix_lines as over_settings
from fedbench.report.study import Study
from fedbench_papers.tables.page import reproduction_lines as published
from fedbench_papers.tables.reproduction import ReproductionRecord
from tests.papers.tables.test_page import write_published
from tests.report.conftest import write_comparison
from tests.report.reading import page_of
from tests.report.test_matrix import write_matrix

BOTH = {"local": 70.0, "centralized": 60.0}


@pytest.mark.parametrize(
    ("baselines", "score", "tone"),
    [
        (BOTH, 71, "above"),
        (BOTH, 65, "below"),
        (BOTH, 59, "lowest"),
        ({"local": 70.0, "centralized": 80.0}, 75, ""),
        ({"local": 70.0, "centralized": 80.0}, 69, "lowest"),
        ({"local": 70.0}, 71, "above"),
        ({"local": 70.0}, 69, "below"),
        ({"local": 70.0}, 70, ""),
        ({"centralized": 70.0}, 71, ""),
    ],
)
def test_a_method_is_seen_beside_both_baselines(baselines, score, tone):
    assert baseline_tone("fedper", {**baselines, "fedper": score}) == tone


def test_less_is_better_for_a_loss():
    assert baseline_tone("fedper", {**BOTH, "fedper": 71}, higher=False) == "lowest"
    assert baseline_tone("fedper", {**BOTH, "fedper": 59}, higher=False) == "above"


def test_baselines_have_a_colour_of_their_own():
    assert {baseline_tone(name, BOTH) for name in BOTH} == {"baseline"}


LEVELS = {"local": 0.7, "centralized": 0.75, "fedper": 0.8, "fedcac": 0.72, "fedavg": 0.5}
TONES = {"local": "baseline", "centralized": "baseline", "fedper": "above", "fedcac": "", "fedavg": "lowest"}


def test_leaderboards_and_tables_over_settings_show_it(tmp_path):
    write_comparison(tmp_path / "one", LEVELS)
    study = Study.load(tmp_path / "one")
    _, board = laid_out(leaderboard(study), study.metric)
    assert {line[0].text: line[1].tone for line in board} == TONES
    survey = Survey.load(write_matrix(tmp_path / "many", LEVELS, {**LEVELS, "fedper": 0.6}))
    table = {line[0].text: [cell.tone for cell in line[1:]] for line in over_settings(survey)}
    assert table == {label: [tone, tone, ""] for label, tone in TONES.items()} | {"fedper": ["above", "lowest", ""]}


def test_published_numbers_are_seen_beside_their_own_baselines(tmp_path):
    folder = write_published(tmp_path)
    found = {
        line[1].text: [cell.tone for cell in line]
        for line in published(ReproductionRecord.read(folder).compared(folder))
    }
    assert found["local"][2:4] == ["baseline", "baseline"]
    assert found["fedcac"][2:4] == ["above", "above"]
    assert found["ditto"][2:4] == ["above", ""]


def test_pages_say_in_words_what_colours_mean(tmp_path):
    write_comparison(tmp_path, LEVELS)
    text = page_of(tmp_path).text
    assert all(words in text for words in TONE_WORDS.values())
    assert "(worse than the baselines)" in text
