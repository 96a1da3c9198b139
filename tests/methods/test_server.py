"""The server half's state: what a checkpoint keeps of it, and what is told of one round alone."""

from dataclasses import dataclass, field

import torch

from fedbench.methods.server import ServerState
from tests.methods.simulator import Simulation, blobs


@dataclass
class Noting(ServerState):
    """A state of a method with fields of its own."""

    rows: dict[int, torch.Tensor] = field(default_factory=dict)


def begun() -> Noting:
    return Noting(torch.ones(3), torch.zeros(0), torch.zeros(0, dtype=torch.int64))


def test_a_state_is_made_anew_of_what_a_checkpoint_keeps():
    server = begun()
    server.round, server.participants, server.rows[4] = 3, [1, 4], torch.ones(2)
    kept = server.state()
    assert set(kept) == {"params", "buffers", "counters", "round", "participants", "aggregator", "rows"}
    again = Noting(**kept)
    assert again.state() == kept
    assert begun().rows == {}


def test_what_is_said_of_a_round_is_not_kept():
    server = begun()
    server.trace("margin", torch.tensor(0.25))
    server.trace("margin", 1, client=4)
    server.warn("a line")
    assert server.traces == {(-1, "margin"): 0.25, (4, "margin"): 1.0}
    assert all(type(value) is float for value in server.traces.values())
    assert server.warnings == server.remarks() == ["a line"]
    assert server.remarks() == []
    again = Noting(**server.state())
    assert (again.traces, again.warnings) == ({}, [])


def test_clients_are_those_that_have_a_size():
    context = Simulation("fedavg", blobs([16, 0, 24]), draw=lambda round: [0, 2]).context
    assert context.sizes == (16, 0, 24)
    assert context.clients == 3
    assert context.drawn == 2


def test_pairs_are_traced_of_a_few_always_and_of_many_at_the_end():
    server = begun()
    server.round = 3
    assert [server.traces_pairs(clients, rounds=4) for clients in (20, 21, 201)] == [True, False, False]
    server.round = 4
    assert [server.traces_pairs(clients, rounds=4) for clients in (20, 21, 201)] == [True, True, False]
