"""fml: what the specification promises."""

from math import log
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

from fedbench.methods.fml import MEME, divergence, mutual_loss
from fedbench.tasks import load
from tests.methods.simulator import Mlp, Simulation, blobs, close

exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
EVEN, UNEVEN = exact([[0.5, 0.5]]).log(), exact([[0.25, 0.75]]).log()
TRAIN = {"precision": "64-true", "momentum": 0.9, "weight_decay": 0.01}


class Scores(LightningModule):
    """A sample is the number of its row of scores."""

    def __init__(self, rows) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, x):
        return self.rows[x]

    def training_step(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1])


def test_the_divergence_on_paper():
    assert close(divergence(EVEN, UNEVEN), [(log(2) + log(2 / 3)) / 2])
    assert close(divergence(UNEVEN, EVEN), [(log(1 / 2) + 3 * log(3 / 2)) / 4])
    assert close(divergence(torch.cat([EVEN, EVEN]), torch.cat([UNEVEN, EVEN])), [(log(2) + log(2 / 3)) / 4])


@pytest.mark.parametrize(("alpha", "beta"), [(0.25, 0.75), (1.0, 0.0)])
def test_each_model_learns_from_the_batch_and_from_the_other(alpha, beta):
    """The gradient by scores is the weighted distance of its predictions to labels and to the other's."""
    net = Scores(UNEVEN.clone())
    net.add_module(MEME, Scores(EVEN.clone()))
    batch = torch.tensor([0]), torch.tensor([0])
    mutual_loss(net, batch, SimpleNamespace(alpha=alpha, beta=beta), load("classification")).backward()
    own, meme, label = exact([0.25, 0.75]), exact([0.5, 0.5]), exact([1, 0])
    assert close(net.rows.grad, alpha * (own - label) + (1 - alpha) * (own - meme))
    assert close(net.get_submodule(MEME).rows.grad, beta * (meme - label) + (1 - beta) * (meme - own))


def test_without_distances_it_is_local_beside_fedavg():
    make = lambda method, **more: Simulation(  # noqa: E731
        method, blobs([9, 17, 12]), module=Mlp(norm=True), train=TRAIN, draw=lambda t: [0, 1 + t % 2], **more
    ).run(3)
    run, local, fedavg = make("fml", alpha=1, beta=1), make("local"), make("fedavg")
    size = len(fedavg.server.params)
    assert torch.equal(run.server.params, fedavg.server.params)
    assert torch.equal(run.server.buffers, fedavg.server.buffers)
    for client in range(3):
        own = run.personal(client).params[:size]  # sums of gradients are rounded in another order
        torch.testing.assert_close(own, local.personal(client).params, rtol=0, atol=1e-14)
    assert run.log[0].up == fedavg.log[0].up


def test_what_the_others_know_reaches_the_own_model():
    run, alone = (Simulation("fml", blobs([9, 17]), alpha=alpha).run(2) for alpha in (0.5, 1.0))
    assert not close(run.personal(0).params[:59], alone.personal(0).params[:59])
