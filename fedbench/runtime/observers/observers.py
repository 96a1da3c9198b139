"""All observers of a run as one."""

from collections.abc import Iterable, Sequence
from itertools import chain

from fedbench.runtime.exchange import Report
from fedbench.runtime.observers.observer import EndedExchange, EvaluatedRound, Observer, RunInProgress, Traces
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound


class Observers(Observer):
    """Calls observers one after another, each once its predecessor's remarks have been taken."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.all = observers

    def first_remarks(self) -> Iterable[str]:
        return chain.from_iterable(observer.first_remarks() for observer in self.all)

    def on_longer_run(self, round: int) -> None:
        for observer in self.all:
            observer.on_longer_run(round)

    def on_begin(self, driver: RunInProgress) -> None:
        for observer in self.all:
            observer.on_begin(driver)

    def on_reports(self, number: int, reports: Sequence[Report]) -> Iterable[str]:
        return chain.from_iterable(observer.on_reports(number, reports) for observer in self.all)

    def on_evaluation(self, evaluated: EvaluatedRound) -> Iterable[str]:
        return chain.from_iterable(observer.on_evaluation(evaluated) for observer in self.all)

    def on_training(self, training: TrainedRound, record: RoundRecord) -> Traces:
        return dict(chain.from_iterable(observer.on_training(training, record).items() for observer in self.all))

    def on_aggregation(self, number: int, reports: Sequence[Report]) -> None:
        for observer in self.all:
            observer.on_aggregation(number, reports)

    def on_exchange(self, ended: EndedExchange) -> None:
        for observer in self.all:
            observer.on_exchange(ended)

    def on_end(self, driver: RunInProgress) -> Iterable[str]:
        return chain.from_iterable(observer.on_end(driver) for observer in self.all)
