"""Traces of clients come with their uploads."""

from fedbench.methods.messages import Upload
from fedbench.runtime.exchange import Report
from fedbench.runtime.observers.upload_traces import UploadTraces
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound


def test_a_lost_upload_takes_its_traces_along():
    reports = [
        Report(3, upload=Upload(3, 1, traces={"lambda": 0.25}), logged={"train_loss": 2.0}),
        Report(4, logged={"train_loss": 1.0}),
    ]
    training = TrainedRound(1, [3, 4], [3, 4], [], reports, [], True)
    found = UploadTraces().on_training(training, RoundRecord(1))
    assert found == {(3, "lambda"): 0.25, (3, "logged/train_loss"): 2.0}
