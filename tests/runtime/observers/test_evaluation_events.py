"""Watchers and loggers get every evaluated round once, after its exchange."""

import pytest

from fedbench.results.events import Evaluation, Event
from fedbench.runtime.observers.evaluation_events import EvaluationEvents
from fedbench.runtime.observers.observer import EndedExchange, EvaluatedRound, PointScores
from fedbench.runtime.server.round_record import RoundRecord
from fedbench.tasks import load

TASK = load("classification")
RECORD = RoundRecord(2, traces={(3, "lambda"): 0.5})
SCORES = {client: {"test": {"accuracy": (client, 4.0)}} for client in (1, 3)}
EVALUATED = EvaluatedRound(5, RECORD, [PointScores("after_agg", SCORES, {"point": "after_agg"})])  # type: ignore[typeddict-item]
TRACE = dict(seed=5, round=2, client=3, name="lambda", value=0.5)
CURVES = [
    dict(seed=5, round=2, client=client, name="after_agg_test_accuracy", value=value)
    for client, value in ((1, 0.25), (3, 0.75))
]


@pytest.mark.parametrize(("log_clients", "rows"), [(False, [TRACE]), (True, [TRACE, *CURVES])])
def test_curves_of_clients_are_for_those_who_want_them(log_clients, rows):
    events: list[Event] = []
    observer = EvaluationEvents(events.append, TASK, log_clients)
    assert not [*observer.on_evaluation(EVALUATED)]
    assert not events
    for number in (2, 3):
        observer.on_exchange(EndedExchange(number, [], {"total": 1.5}))
    assert events == [Evaluation(5, 2, TASK.primary, [{"point": "after_agg"}], rows, 1.5)]  # type: ignore[list-item]


def test_a_round_without_scores_has_no_event():
    events: list[Event] = []
    observer = EvaluationEvents(events.append, TASK, True)
    observer.on_evaluation(EvaluatedRound(5, RECORD, []))
    observer.on_exchange(EndedExchange(2, [], {"total": 1.5}))
    assert not events
