"""How often newcomers join; what they promise beyond is in tests/conformance/test_newcomers.py."""

import pandas as pd
import pytest

from fedbench.config.schema import EvaluateConfig
from fedbench.errors import RunError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedavg import FedAvg
from fedbench.results.events import NewcomersJoin
from fedbench.runtime.drive import drive
from fedbench.runtime.exchange import Joining
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.observers.newcomers import Newcomers
from fedbench.runtime.observers.recorder import Recorder
from fedbench.tasks import load
from tests.runtime.rounds import driver, small

NEW = dict(partition__new_clients=2, evaluate__new_clients_epochs=[1, 0], evaluate__new_clients_samples=[3])


def test_a_newcomer_joins_for_each_number_of_epochs_and_then_with_fewer_images(tmp_path):
    asked = EvaluateConfig(new_clients_epochs=[2, 0], new_clients_samples=[9, 3])
    observer = Newcomers(0, 1, asked, Recorder(tmp_path, load("classification")), lambda event: None)
    assert observer.joinings() == [Joining(0), Joining(2), Joining(2, 3), Joining(2, 9)]


def test_watchers_know_that_they_join(tmp_path):
    events: list = []
    drive(resolve(small(rounds=1, **NEW)), tmp_path, InProcess(), events.append)
    assert [event for event in events if isinstance(event, NewcomersJoin)] == [NewcomersJoin(0, 1, 2)]
    assert set(pd.read_parquet(tmp_path / "newcomers.parquet")["client"]) == {8, 9}


class Unwelcoming(FedAvg):
    """Has no message for newcomers."""

    def welcome(self, server, client):
        raise KeyError("who")


def test_a_server_half_without_a_message_for_them_fails_before_round_1(tmp_path):
    run = driver(resolve(small(f"{__name__}:Unwelcoming", **NEW)), tmp_path)
    with pytest.raises(RunError, match=r"KeyError: 'who'"):
        run.begin()
