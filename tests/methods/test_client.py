"""What a client keeps, draws and trains with, from round to round."""

from dataclasses import dataclass, field

import pytest
import torch

from fedbench.engine.fit import Step
from fedbench.methods.client import Client, PrivateState
from fedbench.module.weights import Weights
from tests.methods.simulator import Simulation, blobs


@dataclass
class StateWithFields(PrivateState):
    """A state of a method with fields of its own."""

    personal: Weights | None = None
    seen: list[int] = field(default_factory=list)
    weight: float = 0.5


def client_in_round_3(**train) -> Client:
    """Client 1 of two, in round 3."""
    return Simulation("fedavg", blobs([16, 24]), train=train).client(1, 3)


@pytest.mark.parametrize(
    "fields",
    [{"params": torch.zeros(0)}, {"personal": Weights(*[torch.zeros(1)] * 3)}, {"seen": [0]}, {"weight": 0.0}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_state_is_empty_until_any_field_of_it_is_another(fields):
    assert StateWithFields().is_empty
    assert StateWithFields(optimizers={}, seen=[], weight=0.5).is_empty
    assert not StateWithFields(**fields).is_empty


def test_a_client_draws_the_same_again_and_otherwise_than_anybody_else():
    client = client_in_round_3()
    draw = lambda stream: torch.rand(3, generator=client.generator(stream)).tolist()  # noqa: E731
    first = draw("fit")
    assert draw("fit") == first
    assert draw("mask") != first
    client.round = 4
    assert draw("fit") != first
    client.round, client.id = 3, 0
    assert draw("fit") != first


def test_all_rates_decay_with_the_rounds():
    client = client_in_round_3(lr=0.2, lr_decay=0.5)
    assert client.rate() == pytest.approx(0.2 * 0.25)
    assert client.rate(8.0) == pytest.approx(2.0)


def test_an_optimiser_is_kept_by_its_stream_where_one_is_to_be_kept():
    client = client_in_round_3(momentum=0.9)
    assert client.memory("fit") is None
    assert client.state.is_empty
    client.keeps_optimizers = True
    for stream, step in (("fit", None), ("head", None), ("own", Step(memory="shared"))):
        client.fit(client.initial, client.train, stream, step=step)
    assert sorted(client.state.optimizers) == ["fit", "head", "shared"]
    assert all(client.state.optimizers.values())
    assert client.memory("fit") is client.state.optimizers["fit"]


def test_a_training_step_by_step_is_the_fit():
    client = client_in_round_3()
    fitted = client.fit(client.initial, client.train)
    with client.training(client.initial, client.train) as training:
        for batch in training:
            training.step(batch)
    assert torch.equal(training.weights.params, fitted.params)
