"""An observer has the moments that it overrides."""

from typing import Any

from fedbench.runtime.observers.observer import EvaluatedRound, Observer
from fedbench.runtime.server.round_record import RoundRecord


def test_an_observer_that_overrides_nothing_says_and_traces_nothing():
    nobody: Any = None
    silent = Observer()
    assert not [*silent.first_remarks(), *silent.on_reports(0, []), *silent.on_end(nobody)]
    assert not [*silent.on_evaluation(EvaluatedRound(0, RoundRecord(), []))]
    assert silent.on_training(nobody, RoundRecord()) == {}
