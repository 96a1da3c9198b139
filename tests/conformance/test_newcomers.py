"""Clients that join after the last round: every method has a rule for them, and trains as if they did not exist."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedbench.checks.several_hosts import SeveralHosts
from fedbench.config import Config
from fedbench.errors import ConfigError, RunError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import names
from fedbench.methods.client import Client, Predictor
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.messages import Message
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights
from fedbench.runtime.drive import drive
from fedbench.runtime.exchange import Order, Relocation, Reply
from fedbench.runtime.hosts import InProcess
from tests.runtime.rounds import Stopped, described, driver, play, small

REFUSE = {"cfl", "fedamp"}
"""Methods that need every client from the start."""
STRANGE = ["fedavg", "ditto", "pfedhn", "fedfomo"]
"""Methods of each kind of rule: none, at the client, at both, and one whose messages depend on the client."""


def asked(method: str = "fedavg", **more: Any) -> Config:
    short = {"evaluate__new_clients_epochs": [0, 1], "evaluate__new_clients_samples": [1], "rounds": 2}
    return small(method, **{**short, "partition__new_clients": 2, **more})


def newcomers(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "newcomers.parquet")


@pytest.mark.parametrize("method", names())
def test_every_method_takes_newcomers_in_or_says_why_not(method, tmp_path):
    if method in REFUSE:
        with pytest.raises(ConfigError, match=r"^partition.new_clients: \w+ has no rule for .*; leave it out$"):
            check_run(resolve(asked(method)))
        return
    play(asked(method), tmp_path)
    rows = newcomers(tmp_path)
    assert set(map(tuple, rows[["client", "epochs", "images"]].to_numpy().tolist())) == {
        (client, *joining) for client in (8, 9) for joining in ((0, 0), (1, 0), (1, 1))
    }
    assert rows["value"].notna().all()
    assert set(pd.read_parquet(tmp_path / "clients.parquet")["client"]) == set(range(8))


@pytest.mark.parametrize("method", [*STRANGE, "feddyn", "feddbe"])
def test_training_is_that_of_a_partition_without_them(method, tmp_path):
    """Of the file that the run leaves, without its newcomers."""
    config = asked(method, participation=0.5)
    described(config, tmp_path / "described")
    path = tmp_path / "described" / "partition.json"
    without = asked(method, participation=0.5, partition={"name": "file", "path": path, "clients": 8})
    without.evaluate = small().evaluate
    assert play(config, tmp_path / "with") == play(without, tmp_path / "without")
    assert not (tmp_path / "without" / "newcomers.parquet").exists()


class StoppingLate:
    """Hosts that end the run when newcomers are to join."""

    def __init__(self) -> None:
        self._hosts = InProcess()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hosts, name)

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        if orders[0].tasks[0].joining:
            raise Stopped
        return self._hosts.exchange(orders, moves)


@pytest.mark.parametrize("method", STRANGE)
def test_same_bits_on_two_hosts_and_after_a_stop_before_they_join(method, tmp_path):
    config = asked(method, participation=0.5, checkpoint__every=1)
    here = play(config, tmp_path / "here")
    with pytest.raises(Stopped):
        drive(resolve(config), (tmp_path / "stopped"), StoppingLate())  # type: ignore[arg-type]
    assert not (tmp_path / "stopped" / "newcomers.parquet").exists()
    assert play(config, tmp_path / "stopped", resume=True) == here
    assert play(config, tmp_path / "two", SeveralHosts(2)) == here
    content = [(tmp_path / name / "newcomers.parquet").read_bytes() for name in ("here", "stopped", "two")]
    assert content == content[:1] * 3


def test_under_fedavg_a_newcomer_begins_with_the_score_of_the_global_model(tmp_path):
    run = driver(resolve(asked()), tmp_path)
    run.run()
    run.recorder.write_tables()
    host = run.hosts._host  # type: ignore[attr-defined]
    model = run.server_half.global_weights()
    assert model is not None
    rows = newcomers(tmp_path).query("metric == 'accuracy' and epochs == 0").set_index("client")
    for number in (8, 9):
        data = host.data.split([number], "test", ("test",))
        right, count = host.models[0].learner.evaluate(model, data)["accuracy"]
        assert rows["value"][number] == right / count
        assert rows["n"][number] == count == len(run.setup.partition.rows_of(number).test)


class Shy(FedAvg):
    """Client 8 cannot train, and client 9 diverges on a single image."""

    def join(self, client: Client, received: Weights) -> Weights | Predictor:
        if client.id == 8 and client.epochs:
            raise ValueError("I would rather not")
        found = super().join(client, received)
        return found if client.samples > 1 else received.replace(params=received.params / 0)


def test_a_newcomer_that_fails_is_named_and_the_others_are_not_lost(tmp_path):
    run = driver(resolve(asked(f"{__name__}:Shy")), tmp_path)
    run.run()
    run.recorder.write_tables()
    rows = newcomers(tmp_path).query("metric == 'accuracy'")
    assert rows[["client", "epochs", "images"]].to_numpy().tolist() == [[8, 0, 0], [9, 0, 0], [9, 1, 0]]
    shy, diverged = run.recorder.warnings[-2:]
    assert shy.startswith("seed 0: scores of 1 newcomer (the first: client 8) are missing: ValueError: I would rather")
    assert "(the first: client 9) are missing: its model holds values that are not finite: lower train.lr" in diverged


class Numbered(FedAvg):
    """Its server has something for each of eight clients."""

    def send(self, server: ServerState, client: int) -> Message:
        return super().send(server, client).add(own=torch.arange(8)[client])


def test_a_server_half_without_a_message_for_newcomers_fails_before_round_1(tmp_path):
    with pytest.raises(RunError, match=r"Numbered.welcome fails: IndexError: .*8"):
        play(asked(f"{__name__}:Numbered"), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize("key", ["new_clients_epochs", "new_clients_samples"])
def test_what_is_asked_of_newcomers_needs_some(key):
    with pytest.raises(ConfigError, match=rf"^evaluate.{key}: no client joins .*; set partition.new_clients$"):
        resolve(small(**{f"evaluate__{key}": [3]}))


def test_counts_are_those_of_the_clients_that_train():
    with pytest.raises(ConfigError, match=r"there are 8 clients beside the 2 that join later; take at most that many$"):
        resolve(asked(participation=9))
