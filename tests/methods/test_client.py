"""What a client keeps, draws and trains with, from round to round."""

from dataclasses import dataclass, field

import pytest
import torch

from fedbench.engine.fit import Step
from fedbench.methods.client import Client, PrivateState, held_count
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


def test_a_part_is_held_out_once_and_for_all_rounds():
    client = client_in_round_3()
    kept, held = client.split(0.2, "validation")
    assert (len(kept), len(held)) == (19, 5)
    client.round, client.train.key = 4, (0, 1, 4)
    again, _ = client.split(0.2, "validation")
    assert torch.equal(again.x, kept.x)
    assert again.key == (0, 1, 4)
    other, _ = client.split(0.2, "other")
    assert not torch.equal(other.x, kept.x)
    assert torch.equal(client.split(0.2)[1].x, client.train.x[-5:])
    whole = torch.cat([kept.x, held.x])
    assert torch.equal(whole.sort(0).values, client.train.x.sort(0).values)


@pytest.mark.parametrize(("count", "held"), [(12, 2), (9, 2), (6, 1), (50, 10), (3, 1), (2, 1), (1, 0)])
def test_how_many_are_held_out(count, held):
    assert held_count(count, 0.2) == held


def test_steps_made_are_those_of_the_training():
    client = client_in_round_3(batch_size=8, epochs=2)
    client.learner.ledger.clear()
    assert client.steps_made == 0
    client.fit(client.initial, client.train)
    assert client.steps_made == 6


def squared(net, batch, s, teacher):
    return s.scale * (net(batch[0]) - teacher).square().mean()


def test_a_loss_beside_frozen_models():
    """What they say is computed once, or batch by batch where images are augmented: the same where these do nothing."""
    client = client_in_round_3(momentum=0)
    teach = lambda data: client.learner.logits(client.initial, data) + 1  # noqa: E731
    whole = client.distillation_loss(squared, teach, client.train, scale=0.5)
    client.learner.changes_batches = lambda data: True
    single = client.distillation_loss(squared, teach, client.train, scale=0.5)
    assert "teacher_outputs" in whole.needs
    assert "teacher_outputs" not in single.needs
    first, second = (client.fit(client.initial, client.train, loss=loss) for loss in (whole, single))
    assert not torch.equal(first.params, client.initial.params)
    assert torch.allclose(first.params, second.params, rtol=0, atol=1e-6)
