"""Traces what clients note of themselves: with their uploads, and by `self.log` in their modules."""

from fedbench.runtime.observers.observer import Observer, Traces
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound


class UploadTraces(Observer):
    """The traces of clients whose upload arrived."""

    def on_training(self, training: TrainedRound, record: RoundRecord) -> Traces:
        traces: Traces = {}
        for report in training.reports:
            if report.upload is not None:
                logged = {f"logged/{name}": value for name, value in report.logged.items()}
                values = report.upload.traces | logged
                traces |= {(report.client, name): value for name, value in values.items()}
        return traces
