"""Tones, markers, marks and words of tables show what was decided, and nothing else."""

import pytest

from fedbench.report.comparisons import behind_best, forest
from fedbench.report.leaderboard import leaderboard
from fedbench.report.leaderboard_table import leaderboard_frame, score_table, sequential_columns
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.settings_tables import ranked_table
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT
from fedbench.report.verdicts import mark_of, markers, sequential_verdicts, tone_of
from fedbench.results.contrasts import Contrast
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import interval
from fedbench.results.verdict import Bound, Verdict
from tests.report.conftest import write_comparison
from tests.report.test_settings_tables import write_matrix

LEVELS = {"local": 0.7, "centralized": 0.75, "fedper": 0.8, "fedcac": 0.7001, "fedavg": 0.5}
COLOURS = {"local": "baseline", "centralized": "baseline", "fedper": "above", "fedcac": "open", "fedavg": "below"}


def verdict(sign: int, alone: int, is_doubtful: bool = False) -> Contrast:
    gain = interval([(sign or alone) * value for value in (0.9, 1.0, 1.1)])
    p, adjusted = (0.01 if found else 0.5 for found in (alone, sign))
    doubt = "b failed" if is_doubtful else ""
    return Contrast("a", "b", gain, doubt=doubt, resampled=None, p=p, better_off=gain, p_adjusted=adjusted)


STATES = [
    (1, 1, False, "above", "*"),
    (-1, -1, False, "below", "†"),
    (0, 1, False, "above-alone", ""),
    (0, -1, False, "below-alone", ""),
    (0, 0, False, "open", ""),
    (1, 1, True, "open", "(*)"),
    (0, 1, True, "open", ""),
]


@pytest.mark.parametrize(("sign", "alone", "is_doubtful", "tone", "mark"), STATES)
def test_a_difference_is_clear_or_clear_by_itself_or_open(sign, alone, is_doubtful, tone, mark):
    found = verdict(sign, alone, is_doubtful)
    assert (tone_of("fedper", found), tone_of("local", found), mark_of(found)) == (tone, "baseline", mark)


def test_markers_are_filled_if_clear_and_hollow_if_clear_by_themselves_only():
    found = [verdict(1, 1), verdict(0, 1), verdict(-1, -1), verdict(0, -1), verdict(0, 0), verdict(1, 1, True)]
    blue, red, grey, ground = (LIGHT[name] for name in ("accent", "alarm", "quiet", "ground"))
    made = markers(found)
    assert made["color"] == [blue, ground, red, ground, grey, grey]
    assert made["line"]["color"] == [blue, blue, red, red, grey, grey]
    assert markers(found, view=-1)["color"] == [red, ground, blue, ground, grey, grey]


def test_leaderboards_and_tables_over_settings_show_it(tmp_path):
    write_comparison(tmp_path / "one", LEVELS)
    study = Study.load(tmp_path / "one")
    rows = leaderboard(study)
    board = score_table(study, rows)
    assert {line[0].text: line[1].tone for line in board.lines} == COLOURS
    signs = {row.label: row.over_local.sign for row in rows if row.over_local}
    assert signs == {"centralized": 1, "fedper": 1, "fedcac": 0, "fedavg": -1}
    survey = SettingsStudy.load(write_matrix(tmp_path / "many", LEVELS, {**LEVELS, "fedper": 0.6}))
    table = {line[0].text: [cell.tone for cell in line[1:]] for line in ranked_table(survey).lines}
    assert table == {label: [tone, tone, ""] for label, tone in COLOURS.items()} | {"fedper": ["above", "below", ""]}


def test_verdicts_stand_in_the_table_in_place_of_p_values(sequential):
    study = sequential()
    rows = leaderboard(study)
    table = score_table(study, rows)
    assert {column.title for column in sequential_columns(study.metric)} <= set(table.heads)
    by_label = {line[0].text: dict(zip(table.heads, line, strict=True)) for line in table.lines}
    assert by_label["fedcac"]["who is best"].text == "best"
    assert by_label["fedper"]["who is best"].text == "not the best"
    assert by_label["fedper"]["against local"].text == "better"
    assert by_label["fedper"]["score"].tone == "above"
    assert not any("±" in cell.text for line in table.lines for cell in line), "intervals of a fixed number of seeds"
    frame = leaderboard_frame(study, rows).set_index("method")
    assert frame.loc["fedcac", "sequential_who_is_best"] == "best"
    assert frame.loc["fedper", "sequential_over_local_low"] > 0


def words(study: Study, label: str, **state) -> tuple[str, str]:
    *_, standing = sequential_verdicts(study, SequentialTest(look=8, seeds={label: 8}, **state), label)
    return standing.against_local, standing.who_is_best


def test_words_of_a_sequential_test_follow_its_state(sequential):
    study, own = sequential(), Bound(0.01, -0.01, 0.019, 0.004, 8)
    equal = {"fedper": Verdict("fedper", "local", own, margin=0.02)}
    better = {"fedper": Verdict("fedper", "local", Bound(0.1, 0.05, 0.2, 0.01, 8))}
    out = {"fedper": ("fedcac", Bound(0.1, 0.05, 0.2, 0.01, 8))}
    both = {"candidates": ["fedcac", "fedper"], "behind": {"fedper": own}}
    assert words(study, "fedper", over_local=equal) == ("equal within 2 points", "")
    assert words(study, "fedper", over_local=better, out=out) == ("better", "not the best")
    assert words(study, "fedper", undecided={"fedper": own}) == ("open", "")
    assert words(study, "fedper", undecided={"fedper": own}, given_up={"fedper": 0.1}) == ("given up", "")
    assert words(study, "fedper", undecided={"fedper": own}, withheld={("local", "fedper"): "better"})[0] == "withheld"
    for ending, of_leader, of_other in (
        ("tie", "best, tied", "equal within 2 points"),
        ("within", "best or within 2 points", "may be better"),
        ("open", "open", "open"),
        (None, "open", "open"),
    ):
        assert words(study, "fedcac", ending=ending, **both)[1] == of_leader
        assert words(study, "fedper", ending=ending, **both)[1] == of_other
    assert words(study, "fedcac", ending="winner", candidates=["fedcac"])[1] == "best"
    study.plan.ends = {"fedper": ["train.lr"], "local": ["train.lr"]}
    assert words(study, "fedper", over_local=better, out=out) == ("withheld", "withheld")


def test_each_difference_to_the_best_has_the_name_of_the_other_method(sequential):
    study = sequential(levels={"local": 0.8, "fedper": 0.7, "fedcac": 0.6})
    rows = leaderboard(study)
    assert rows[0].label == "local"
    for drawn in (forest(study, rows), behind_best(study, rows)):
        assert [*drawn.data[-1].y] == [one for one, *_ in drawn.layout.meta["table"]["rows"]] == ["fedper", "fedcac"]
    study.plan.ends = {"fedper": ["train.lr"], "fedcac": ["train.lr"]}
    assert {*behind_best(study, leaderboard(study)).data[-1].marker.color} == {LIGHT["quiet"]}, "all in doubt"
