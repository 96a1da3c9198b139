"""Every remark is given once, and those before round 1 come first."""

from fedbench.results.events import Remark
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.observers.remark_log import RemarkLog
from fedbench.tasks import load


def log_of(tmp_path, warnings: list[str]) -> tuple[RemarkLog, list]:
    recorder, events = Recorder(tmp_path, load("classification")), list()
    recorder.warnings = warnings
    return RemarkLog(recorder, events.append), events


def test_a_remark_is_given_and_recorded_once(tmp_path):
    log, events = log_of(tmp_path, [])
    log.give(["a", "b", "a"])
    log.give(["b"])
    assert log.recorder.warnings == ["a", "b"]
    assert events == [Remark("a"), Remark("b")]


def test_a_continued_run_repeats_nothing(tmp_path):
    log, events = log_of(tmp_path, ["first", "later"])
    log.give_first(["first"], known=1)
    assert log.recorder.warnings == ["first", "later"]
    assert log.first == 1
    assert not events


def test_a_longer_run_forgets_first_remarks_that_it_would_not_give(tmp_path):
    log, events = log_of(tmp_path, ["after 4 rounds", "kept", "later"])
    log.give_first(["kept", "after 8 rounds"], known=2, is_longer=True)
    assert log.recorder.warnings == ["kept", "after 8 rounds", "later"]
    assert log.first == 2
    assert events == [Remark("after 8 rounds")]
