"""Traces the uploads that got lost, and the time of a synchronous round."""

from fedbench.config import Config
from fedbench.runtime.observers.observer import Observer, Traces
from fedbench.runtime.server.fleet import fleet_traces
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound


class FleetTraces(Observer):
    """The traces of `dropout` and `stragglers.spread`, if they are set."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.seed = config, seed

    def on_training(self, training: TrainedRound, record: RoundRecord) -> Traces:
        steps = {report.client: report.steps for report in training.fits}
        lost = {task.client for task in training.tasks if task.is_lost}
        return fleet_traces(self.config, self.seed, steps, lost)
