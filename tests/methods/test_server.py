"""The server half's state: what a checkpoint keeps of it, and what is told of one round alone."""

from dataclasses import dataclass, field

import torch

from fedbench.config import TrainConfig
from fedbench.methods.server import Context, ServerState
from fedbench.module.layout import Layout
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
    assert context.participants_per_round == 2


def test_pairs_are_traced_of_a_few_always_and_of_many_at_the_end():
    server = begun()
    server.round = 3
    assert [server.traces_pairs(clients, four_rounds()) for clients in (20, 21, 201)] == [True, False, False]
    server.round = 4
    assert [server.traces_pairs(clients, four_rounds()) for clients in (20, 21, 201)] == [True, True, False]


def four_rounds() -> Context:
    return Context(Layout((), (), ()), TrainConfig(), 0, 4, 10, (1,))


def test_a_run_that_has_read_the_number_of_its_rounds_is_known_by_it():
    context = four_rounds()
    assert not context.is_last(3)
    with context.allow_rounds():
        assert context.rounds == 4
    assert not context.uses_rounds, "a longer run would have seen the same"
    assert context.is_last(4)
    assert context.uses_rounds
    other = four_rounds()
    assert (other.rounds, other.uses_rounds) == (4, True)


def test_a_server_draws_the_same_again_and_otherwise_for_anybody_else():
    context = Simulation("fedavg", blobs([16, 24])).context
    draw = lambda *key: torch.rand(3, generator=context.generator(*key)).tolist()  # noqa: E731
    first = draw(2, 1, "choice")
    assert draw(2, 1, "choice") == first
    assert all(draw(*key) != first for key in ((3, 1, "choice"), (2, 0, "choice"), (2, 1, "other")))


def test_several_start_models_are_the_runs_and_others():
    run = Simulation("fedavg", blobs([16]), seed=7)
    drawn = run.context.start_models(run.initial, 3)
    assert drawn[0] is run.initial
    assert not torch.equal(drawn[1].params, drawn[2].params)
    assert torch.equal(drawn[2].params, run.context.start_models(run.initial, 3)[2].params)
    near = run.context.start_models(run.initial, 3, jitter=0.5)
    noise = torch.randn(59, generator=torch.Generator().manual_seed(7 + 2))
    assert torch.equal(near[2].params, run.initial.params + 0.5 * noise)
    assert all(torch.equal(a.params, run.initial.params) for a in run.context.start_models(run.initial, 2, jitter=0.0))
