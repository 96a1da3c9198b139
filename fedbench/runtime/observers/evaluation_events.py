"""Tells watchers of every evaluated round, with the curves of clients for loggers."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from fedbench.results.events import Evaluation, Event
from fedbench.results.logged import LoggedRow, client_curves
from fedbench.runtime.observers.observer import EndedExchange, EvaluatedRound, Observer
from fedbench.runtime.observers.recorder import client_values
from fedbench.tasks import Task


class EvaluationEvents(Observer):
    """Makes the event of a round when it is evaluated, and sends it when the exchange is over."""

    def __init__(self, on_event: Callable[[Event], None], task: Task, log_clients: bool) -> None:
        self.on_event, self.metric, self.log_clients = on_event, task.primary, log_clients
        self._next: Evaluation | None = None

    def on_evaluation(self, evaluated: EvaluatedRound) -> Iterable[str]:
        if evaluated.points:
            seed, round = evaluated.seed, evaluated.record.number
            lines = [at.line for at in evaluated.points]
            rows = [*self._trace_rows(evaluated), *(self._curves(evaluated) if self.log_clients else ())]
            self._next = Evaluation(seed, round, self.metric, lines, rows)
        return ()

    def on_exchange(self, ended: EndedExchange) -> None:
        if self._next:
            self.on_event(replace(self._next, seconds=ended.seconds["total"]))
            self._next = None

    def _trace_rows(self, evaluated: EvaluatedRound) -> Iterable[LoggedRow]:
        for (client, name), value in evaluated.record.traces.items():
            yield dict(seed=evaluated.seed, round=evaluated.record.number, client=client, name=name, value=value)

    def _curves(self, evaluated: EvaluatedRound) -> Iterable[LoggedRow]:
        """The clients' test scores."""
        for at in evaluated.points:
            values = client_values(at.scores, "test", self.metric.name)
            yield from client_curves(at.point, self.metric.name, values, evaluated.seed, evaluated.record.number)
