"""fedkd: what the specification promises."""

from math import exp, log
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

from fedbench.methods.fedkd import MENTEE, PROJECTION, distilled_loss, energy_threshold
from fedbench.tasks import load
from tests.methods.simulator import Simulation, blobs, close

TRAIN = {"precision": "64-true", "momentum": 0.9, "weight_decay": 0.01}
MATRICES, BIASES, WHOLE = (5 * 6, 4 * 5), 5 + 4, 59
RANK_ONE = (5 + 6 + 1) + (4 + 5 + 1) + BIASES


class Two(LightningModule):
    """Scores are features times the weights of the head; features are samples times a number."""

    def __init__(self, scale: float, rows) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float64))
        self.head = linear(rows)

    def forward(self, x):
        return self.head(self.scale * x)

    def training_step(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1])


def linear(rows) -> nn.Linear:
    made = nn.Linear(2, 2, bias=False).double()
    made.weight.data = torch.tensor(rows, dtype=torch.float64)
    return made


def pair() -> Two:
    net = Two(1.0, [[0, 0], [log(3), 0]])  # mentor: 1/4, 3/4
    net.add_module(MENTEE, Two(2.0, [[0, 0], [0, 0]]))  # 1/2, 1/2
    net.add_module(PROJECTION, linear([[1, 0], [1, 1]]))
    return net


BATCH = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([1])
SUM = log(4 / 3) + log(2)
KL = (log(2) + log(2 / 3)) / 2, (log(1 / 2) + 3 * log(3 / 2)) / 4
"""Of the mentor from the mentee's predictions, and the other way round."""


@pytest.mark.parametrize("hidden", [False, True])
def test_the_loss_on_paper(hidden):
    """Features 1, 0 of the mentor; 2, 0 of the mentee, projected to 2, 2: mean square ((2 - 1)^2 + 2^2) / 2."""
    net = pair()
    loss = distilled_loss(net, BATCH, SimpleNamespace(), ("head", f"{MENTEE}.head"), load("classification"), hidden)
    assert close(loss.detach(), [SUM + (sum(KL) + 2.5 * hidden) / SUM])
    loss.backward()
    assert close(net.head.weight.grad[:, 0], [x * (1 + 1 / SUM * (y / x)) for x, y in ((0.25, -0.25), (-0.25, 0.25))])
    mentee = net.get_submodule(MENTEE)
    assert close(mentee.head.weight.grad[:, 0], [2 * (0.5 + 0.25 / SUM), 2 * (-0.5 - 0.25 / SUM)])
    if hidden:
        slope = net.get_submodule(PROJECTION).weight.grad
        assert close(slope, [2 * 1 / SUM, 0, 2 * 2 / SUM, 0])  # d/dW of the mean square: (W z - h) z
        assert close(mentee.scale.grad, [(1 * 1 + 2 * 1) / SUM])  # the head's weights are 0


def test_both_models_may_have_learnt_all():
    net = pair()
    for part in (net, net.get_submodule(MENTEE)):
        part.head.weight.data = torch.tensor([[-1e4, 0], [1e4, 0]], dtype=torch.float64)
    loss = distilled_loss(net, BATCH, SimpleNamespace(), ("head", f"{MENTEE}.head"), load("classification"), False)
    assert exp(-loss.item()) == 1


def test_the_threshold_rises_with_the_rounds():
    assert [energy_threshold(0.95, 0.98, over) for over in (0, 0.5, 1)] == pytest.approx([0.95, 0.965, 0.98])


def test_twins_that_start_alike_are_local_beside_fedavg_in_the_first_round():
    """Their predictions are the same, so that neither has anything to teach."""
    make = lambda method, **more: Simulation(method, blobs([9, 17]), train=TRAIN, **more).run(1)  # noqa: E731
    run = make("fedkd", hidden=False, energy_start=1, energy_end=1)
    local, fedavg = make("local"), make("fedavg")
    assert close(run.server.params, fedavg.server.params)
    for client in range(2):
        assert close(run.personal(client).params[:WHOLE], local.personal(client).params)
    assert run.log[0].up == {0: 8 * WHOLE, 1: 8 * WHOLE}


def test_updates_go_by_their_largest_singular_value_both_ways():
    run = Simulation(
        "fedkd", blobs([9, 17]), train=TRAIN, energy_start=0, energy_end=0, draw=lambda t: [0] + [1] * (t != 2)
    )
    start = run.server.params
    run.run(1)
    change = (run.server.params - start)[: MATRICES[0]].view(5, 6)
    values = torch.linalg.svdvals(change)
    assert values[0] > 1e-3
    assert values[1] < 1e-12
    run.run(3)
    assert run.log[0].up == {0: 8 * RANK_ONE, 1: 8 * RANK_ONE}
    assert [made.down.get(0) for made in run.log] == [8 * WHOLE, 8 * RANK_ONE, 8 * RANK_ONE, 8 * RANK_ONE]
    assert [made.down.get(1) for made in run.log] == [8 * WHOLE, None, 8 * WHOLE, 8 * RANK_ONE]  # two are longer


def test_mentor_and_projection_stay():
    run = Simulation("fedkd", blobs([9, 17])).run(2)
    layout = run.context.layout
    shared = [slot.name for slot in layout.params if run.method.shared_params.mask[slot.start]]
    assert shared == [f"{MENTEE}.{name}" for name in ("body.0.weight", "body.0.bias", "head.weight", "head.bias")]
    before = Simulation("fedkd", blobs([9, 17])).personal(0)
    place = next(slot for slot in layout.params if slot.name.startswith(PROJECTION))
    moved = run.personal(0).params[place.start : place.stop]
    assert not torch.equal(moved, before.params[place.start : place.stop])
