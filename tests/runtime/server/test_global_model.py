"""A server that keeps models of its own and never writes the common one has no global model."""

import json
from dataclasses import dataclass, field

import pytest

from fedbench.methods import load
from fedbench.methods.base import Method
from fedbench.methods.client import PrivateState
from fedbench.methods.messages import model_message, weights_of
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights
from fedbench.results.reader import Records
from fedbench.runtime.server.global_model import GlobalModel
from tests.runtime.rounds import driver, play, resolve, small, stop

HERE = "tests.runtime.server.test_global_model"


class Clusters(Method[Method.Options, PrivateState, "Clusters.Server"]):
    """Two clusters: even and odd clients."""

    @dataclass
    class Server(ServerState):
        models: list[Weights] = field(default_factory=list)

    def start(self, initial):
        server = super().start(initial)
        server.models = [weights_of(server)] * 2
        return server

    def send(self, server, client):
        return model_message(**vars(server.models[client % 2]))

    def aggregate(self, server, uploads):
        for number in (0, 1):
            if own := [upload for upload in uploads if upload.client % 2 == number]:
                server.models[number] = self.mean_model(own)


class WithFirst(Clusters):
    """The first cluster's model is the server's."""

    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        server.set_model(server.models[0])


class InPlace(Clusters):
    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        server.params.copy_(server.models[0].params)


class Unchanged(Method):
    """Assigns the numbers that were there, as a rate of 0 would."""

    def aggregate(self, server, uploads):
        server.params = server.params.clone()


class FromSecond(Clusters):
    """Writes the common model in later rounds only."""

    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        if server.round > 1:
            server.set_model(server.models[0])


class OwnWord(Clusters):
    """Says itself what the global model is."""

    def global_model(self, server, initial):
        return self.whole_model(server, initial)


def of(name: str, **more):
    return small(f"{HERE}:{name}", rounds=3, partition__clients=4, **more)


def rounds_of(folder, point: str) -> set[int]:
    lines, clients = Records(folder).metrics(), Records(folder).clients()
    found = set(lines[lines["point"] == point]["round"])
    assert found == set(clients[clients["point"] == point]["round"])
    return found


def test_no_point_no_model_and_one_remark(tmp_path):
    made = driver(resolve(of("Clusters", save_models=True)), tmp_path)
    made.run()
    made.recorder.write_tables()
    assert rounds_of(tmp_path, "global") == set()
    assert rounds_of(tmp_path, "after_agg") == {1, 2, 3}
    said = [line for line in made.recorder.warnings if "leaves the server's model as it was at the start" in line]
    assert len(said) == 1
    assert {path.name for path in (tmp_path / "models" / "seed-0").iterdir()} == {f"client-{n}" for n in range(4)}


@pytest.mark.parametrize("name", ["WithFirst", "InPlace", "Unchanged", "OwnWord"])
def test_whoever_writes_it_or_says_what_it_is_has_one_in_every_round(name, tmp_path):
    play(of(name, save_models=True), tmp_path)
    assert rounds_of(tmp_path, "global") == {1, 2, 3}
    assert (tmp_path / "models" / "seed-0" / "global").exists()
    points = [json.loads(line)["point"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert points == ["after_fit", "after_agg", "global"] * 3


def test_it_begins_where_it_is_written(tmp_path):
    play(of("FromSecond"), tmp_path)
    assert rounds_of(tmp_path, "global") == {2, 3}


@pytest.mark.parametrize("name", ["Clusters", "WithFirst", "FromSecond"])
def test_a_resumed_run_knows_it(name, tmp_path):
    whole = play(of(name), tmp_path / "whole")
    stop(of(name, checkpoint__every=1), tmp_path / "parts", 3)
    assert play(of(name, checkpoint__every=1), tmp_path / "parts", resume=True) == whole


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedavg", "ditto", "fedem"])
def test_methods_that_average_or_say_it_are_not_watched(name):
    made = driver(resolve(small(name)))
    assert GlobalModel(made.method).written is True
    assert load(name).aggregate is type(made.method).aggregate
