"""Colours of tables show what was decided against local training, and nothing else."""

from dataclasses import replace

import pytest

from fedbench.report.leaderboard import leaderboard, score_table
from fedbench.report.matrix import Survey, matrix_lines
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT
from fedbench.report.tones import TONES, markers, tone_of
from fedbench.results.contrasts import Contrast, p_of
from fedbench.results.statistics import interval
from tests.report.conftest import write_comparison
from tests.report.reading import page_of
from tests.report.test_matrix import write_matrix

LEVELS = {"local": 0.7, "centralized": 0.75, "fedper": 0.8, "fedcac": 0.7001, "fedavg": 0.5}
COLOURS = {"local": "baseline", "centralized": "baseline", "fedper": "above", "fedcac": "open", "fedavg": "below"}


STATES = [
    (1, 1, False, "above"),
    (-1, -1, False, "below"),
    (0, 1, False, "above-alone"),
    (0, -1, False, "below-alone"),
    (0, 0, False, "open"),
    (1, 1, True, "open"),
    (0, 1, True, "open"),
]


@pytest.mark.parametrize(("sign", "alone", "is_doubtful", "tone"), STATES)
def test_a_difference_is_clear_or_clear_by_itself_or_open(sign, alone, is_doubtful, tone):
    assert tone_of("fedper", sign, alone, is_doubtful) == tone
    assert tone_of("local", sign, alone, is_doubtful) == "baseline"


def test_markers_are_filled_if_clear_and_hollow_if_clear_by_themselves_only():
    made = markers([(1, 1), (0, 1), (-1, -1), (0, -1), (0, 0)])
    blue, red, grey, ground = (LIGHT[name] for name in ("accent", "alarm", "quiet", "ground"))
    assert made["color"] == [blue, ground, red, ground, grey]
    assert made["line"]["color"] == [blue, blue, red, red, grey]


def test_a_contrast_may_be_clear_by_itself_only():
    """The t test of 0.8, 1.3 and 1.8: t = 4.5, p = 0.046; in a large family the same is open."""
    own = Contrast(
        "a", "b", interval([0.8, 1.3, 1.8]), None, p_of([0.8, 1.3, 1.8]), interval([1.0] * 3), p_adjusted=0.2
    )
    assert own.p == pytest.approx(0.046, abs=5e-4)
    assert (own.sign, own.sign_alone) == (0, 1)
    weak = replace(own, p=0.06)
    assert (weak.sign, weak.sign_alone) == (0, 0)
    assert replace(own, p_adjusted=0.04).sign == 1


def test_leaderboards_and_tables_over_settings_show_it(tmp_path):
    write_comparison(tmp_path / "one", LEVELS)
    study = Study.load(tmp_path / "one")
    rows = leaderboard(study)
    _, board = score_table(rows, study.metric)
    assert {line[0].text: line[1].tone for line in board} == COLOURS
    signs = {row.label: row.over_local.sign for row in rows if row.over_local}
    assert signs == {"centralized": 1, "fedper": 1, "fedcac": 0, "fedavg": -1}
    survey = Survey.load(write_matrix(tmp_path / "many", LEVELS, {**LEVELS, "fedper": 0.6}))
    table = {line[0].text: [cell.tone for cell in line[1:]] for line in matrix_lines(survey)}
    assert table == {label: [tone, tone, ""] for label, tone in COLOURS.items()} | {"fedper": ["above", "below", ""]}


def test_pages_say_in_words_what_colours_mean(tmp_path):
    write_comparison(tmp_path, LEVELS)
    text = page_of(tmp_path).text
    assert all(words in text for words in TONES.values())
    assert "(worse than local training)" in text
