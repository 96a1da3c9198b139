"""Colours of tables show what was decided against local training, and nothing else."""

import pytest

from fedbench.report.leaderboard import laid_out, leaderboard
from fedbench.report.matrix import Survey, matrix_lines
from fedbench.report.study import Study
from fedbench.report.tones import TONES, tone_of
from tests.report.conftest import write_comparison
from tests.report.reading import page_of
from tests.report.test_matrix import write_matrix

LEVELS = {"local": 0.7, "centralized": 0.75, "fedper": 0.8, "fedcac": 0.7001, "fedavg": 0.5}
COLOURS = {"local": "baseline", "centralized": "baseline", "fedper": "above", "fedcac": "", "fedavg": "below"}


@pytest.mark.parametrize(
    ("sign", "is_doubtful", "tone"), [(1, False, "above"), (-1, False, "below"), (0, False, ""), (1, True, "")]
)
def test_only_what_was_decided_and_is_not_doubted_has_a_colour(sign, is_doubtful, tone):
    assert tone_of("fedper", sign, is_doubtful) == tone


def test_leaderboards_and_tables_over_settings_show_it(tmp_path):
    write_comparison(tmp_path / "one", LEVELS)
    study = Study.load(tmp_path / "one")
    rows = leaderboard(study)
    _, board = laid_out(rows, study.metric)
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
