"""Lost uploads and the time of a round are traced if they are set."""

import pytest

from fedbench.methods.messages import Message, Upload
from fedbench.runtime.exchange import ClientTask, Report
from fedbench.runtime.observers.fleet_traces import FleetTraces
from fedbench.runtime.server.fleet import round_time
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from tests.runtime.rounds import small

TASKS = [ClientTask(client, Message(), is_lost=client == 1) for client in range(3)]
REPORTS = [Report(client, trained=True, steps=5 + client, upload=Upload(client, 1)) for client in range(3)]
TRAINED = TrainedRound(1, range(3), range(3), TASKS, REPORTS, [], True)


@pytest.mark.parametrize(
    ("more", "traces"),
    [
        ({}, {}),
        ({"dropout": 0.5}, {(-1, "lost_uploads"): 1.0}),
        ({"stragglers": {"spread": 0.4}}, {(-1, "round_time"): round_time(7, {0: 5, 2: 7}, 0.4)}),
    ],
)
def test_what_is_set_is_traced(more, traces):
    assert FleetTraces(small(**more), 7).on_training(TRAINED, RoundRecord(1)) == traces
