"""Doubts and notes: the level of a remark, and how each is said once."""

import json
import pickle

import pytest

from fedbench.config import Config
from fedbench.results.reader import Records
from fedbench.results.remarks import (
    Doubt,
    beside_row,
    doubts_in,
    footnote_numbers,
    with_label,
    with_levels,
    with_methods,
)
from fedbench.results.summary import write_summary
from fedbench.runtime.observers.recorder import Recorder
from fedbench.tasks import load

FEDBN = Doubt("fedbn: the model has no BatchNorm layer with numbers of its own, so this is fedavg")
READING = "column age is a feature"


def test_a_doubt_is_its_text_and_a_doubt_in_another_process_too():
    again = pickle.loads(pickle.dumps([FEDBN, READING]))
    assert again == [str(FEDBN), READING]
    assert doubts_in(again) == [FEDBN]


def test_the_level_is_that_of_the_maker_and_not_of_the_words():
    assert [with_label(Doubt(READING)), with_label(str(FEDBN))] == [f"warning: {READING}", f"note: {FEDBN}"]


@pytest.mark.parametrize("doubts", [[FEDBN], []])
def test_a_level_survives_a_checkpoint(doubts, tmp_path):
    recorder, later = (Recorder(tmp_path, load("classification")) for _ in range(2))
    recorder.warnings = [READING, FEDBN if doubts else str(FEDBN)]
    state = json.loads(json.dumps(recorder.state()))
    later.restore(state)
    assert later.warnings == recorder.warnings
    assert doubts_in(later.warnings) == doubts


@pytest.mark.parametrize("doubts", [[FEDBN], []])
def test_a_level_survives_the_records(doubts, tmp_path):
    (tmp_path / "config.yaml").write_text(Config(rounds=1).to_yaml())
    (tmp_path / "metrics.jsonl").write_text("")
    write_summary(Records(tmp_path), [READING, *doubts])
    written = json.loads((tmp_path / "summary.json").read_text())
    assert (written["warnings"], written["doubts"]) == ([READING, *doubts], doubts)
    assert doubts_in(Records(tmp_path).warnings()) == doubts


def test_remarks_of_results_without_levels_are_notes(tmp_path):
    (tmp_path / "config.yaml").write_text(Config(rounds=1).to_yaml())
    (tmp_path / "summary.json").write_text(json.dumps({"warnings": [READING, FEDBN]}))
    assert doubts_in(Records(tmp_path).warnings()) == []


def test_doubts_are_numbered_once():
    assert doubts_in(with_levels([READING, FEDBN, FEDBN], [FEDBN])) == [FEDBN]
    assert footnote_numbers([(), (FEDBN,), ("b", FEDBN)]) == {FEDBN: 1, "b": 2}


def test_of_many_doubts_the_first_stand_beside_the_row():
    many = [f"client {number} was left out" for number in range(5)]
    assert beside_row(many) == tuple(many)
    more = "3 more warnings like the last one, in the report"
    assert beside_row([*many, "a", "b"]) == (*many[:4], more)


def test_a_remark_stands_once_with_its_methods_and_doubts_come_first():
    found = with_methods({"fedper": [READING, Doubt("one")], "local": [READING]})
    assert found == ["fedper: one", READING]
    assert doubts_in(found) == ["fedper: one"]
    assert with_methods({"fedper": ["one", "one"]}) == ["fedper: one"]
    assert with_methods({"fedbn": [FEDBN], "local": []}) == [FEDBN]
