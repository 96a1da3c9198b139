"""fedrod: what the specification promises."""

import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench.errors import ConfigError
from fedbench.methods.fedrod import balanced_softmax
from tests.methods.simulator import Data, Mlp, Simulation, assert_near, blobs, close

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1, "precision": "64-true"}
OTHERS = [{}, {"personal_init": "copy"}, {"personal_training": "after"}, {"personal_lr": 0.5}]


@pytest.mark.parametrize(
    ("gamma", "counts", "label", "loss", "slope"),
    [
        (1, (4, 1, 0), 0, 0.087983, (-0.084224, 0.084224, 0)),
        (0.5, (4, 1, 0), 0, 0.168848, (-0.155362, 0.155362, 0)),
        (0, (1, 1, 1), 0, 0.407606, (-0.334759, 0.244728, 0.090031)),
        (1, (4, 1, 0), 1, 2.474278, (0.915776, -0.915776, 0)),
        (0.5, (4, 1, 0), 1, 1.861995, None),
        (0, (1, 1, 1), 1, 1.407606, None),
        (1, (8, 2, 0), 0, 0.087983, (-0.084224, 0.084224, 0)),
        (1, (2, 2, 2), 0, 0.407606, None),
    ],
)
def test_the_balanced_softmax_on_paper(gamma, counts, label, loss, slope):
    scores = torch.tensor([[1.0, 0, -1]], dtype=torch.float64, requires_grad=True)
    prior = gamma * torch.tensor(counts, dtype=torch.float64).log()
    found = balanced_softmax(scores, torch.tensor([label]), prior)
    assert close(found, [loss])
    (g,) = torch.autograd.grad(found, scores)
    if slope is not None:
        assert close(g, slope)
        assert all(float(a) == 0 for a, b in zip(g[0], slope, strict=True) if b == 0)


class Scaled(LightningModule):
    """Features b x, from b = 1, under a head of two classes with weight (0.5, -0.5) and no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False)
        nn.init.ones_(self.body.weight)
        self.head.weight.data = torch.tensor([[0.5], [-0.5]])

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)


THREE = [Data(torch.tensor([[1.0], [1], [2]]), torch.tensor([0, 0, 1]))]
STEPS = {
    1: [0.947916, 0.447916, -0.447916, -0.040790, 0.040790],
    2: [0.903723, 0.401154, -0.401154, -0.072888, 0.072888],
}


@pytest.mark.parametrize("epochs", [1, 2])
def test_two_joint_steps(epochs):
    run = Simulation("fedrod", THREE, module=Scaled(), train=PLAIN | {"epochs": epochs}, classes=2)
    kept = []
    run.learner.fit, fit = lambda f: kept.append(fit(f)) or kept[-1], run.learner.fit
    run.run(1)
    assert close(kept[0].params, STEPS[epochs])
    assert run.host.models[0].learner.ledger.losses.item() == pytest.approx(
        [1.032106 + 0.917817, 1.032106 + 0.917817 + 0.955564 + 0.832367][epochs - 1], abs=2e-6
    )
    assert close(run.log[0].after_agg[0].params[1:3], [a + b for a, b in zip(STEPS[epochs][1:3], STEPS[epochs][3:])])  # noqa: B905


@pytest.mark.parametrize("options", OTHERS)
def test_without_balance_the_global_model_is_fedavgs(options):
    after = options.get("personal_training") == "after"  # alone, a vector has other remainders
    train = {"momentum": 0.9, "weight_decay": 0.01, "precision": "32-true" if after else "64-true"}
    same = torch.equal if after else lambda a, b: torch.allclose(a, b, rtol=0, atol=1e-12)
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, train=train, **o).run(3)  # noqa: E731
    run, plain = make("fedrod", gamma=0, **options), make("fedavg")
    for one, other in zip(run.log, plain.log, strict=True):
        for i, upload in other.uploads.items():
            assert all(same(one.uploads[i].tensors[n], upload.tensors[n]) for n in upload.tensors)
        assert (one.up, one.down) == (other.up, other.down)
    assert same(run.server.params, plain.server.params)


def test_balanced_clients_are_fedavgs():
    data = blobs([16, 16])
    for own in data:
        own.labels = torch.arange(16) % 4
    train = {"precision": "64-true"}
    run, plain = (Simulation(m, data, train=train, **o).run(2) for m, o in (("fedrod", {}), ("fedavg", {})))
    assert torch.allclose(run.server.params, plain.server.params, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", OTHERS[1:])
def test_uploads_do_not_depend_on_the_personal_head(options):
    train = {"precision": "64-true"}
    make = lambda **o: Simulation("fedrod", blobs([9, 17, 12]), draw=SOME, train=train, **o).run(3)  # noqa: E731
    run, plain = make(**options), make()
    for one, other in zip(run.log, plain.log, strict=True):
        apart = [one.uploads[i].params - other.uploads[i].params for i in other.uploads]
        assert max(float(part.abs().max()) for part in apart) < 1e-12
    assert not torch.equal(run.log[-1].after_fit[0].params, plain.log[-1].after_fit[0].params)


def test_the_personal_model_differs_in_the_head_by_the_kept_one():
    run = Simulation("fedrod", blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, train=PLAIN | {"batch_size": 4})
    run.run(3)
    layout, own = run.context.layout, run.method.private_params.mask
    head = layout.mask("head")
    common = run.method.global_model(run.server, run.initial)
    for i in range(3):
        apart = run.log[-1].after_agg[i].params - common.params
        assert not apart[~(head | own)].any()
        assert torch.allclose(apart[head], run.states[i].params)
        scores = run.learner.logits(run.log[-1].after_agg[i], run.data[i])
        features, generic = run.learner.features(common, run.data[i]), run.learner.logits(common, run.data[i])
        weight, bias = run.states[i].params[:20].view(4, 5), run.states[i].params[20:]
        assert torch.allclose(scores, generic + features @ weight.T + bias, atol=1e-12)
    assert run.log[-1].up[0] == 8 * (69 + 10)


def test_a_rate_of_its_own_moves_the_personal_head_with_its_decay_and_momentum():
    train = {"momentum": 0.9, "weight_decay": 0.1, "epochs": 3, "precision": "64-true", "batch_size": "full"}
    make = lambda lr, **o: Simulation("fedrod", blobs([9]), train=train | {"lr": lr}, **o).run(1)  # noqa: E731
    assert_near(make(0.1, personal_lr=0.1), make(0.1))
    slow = make(1e-9, personal_lr=0.2), make(1e-9, personal_lr=0.2, personal_training="after")
    assert_near(*slow, tolerance=1e-6)  # the generic part hardly moves, so both trainings of the head are one
    head = slow[0].context.layout.mask("head")
    assert float((slow[0].log[0].after_fit[0].params - slow[0].initial.params)[head].norm()) > 0.01


def test_never_trained_clients_predict_as_the_global_model_does():
    run = Simulation("fedrod", blobs([9, 17]), draw=lambda t: [0]).run(2)
    common = run.method.global_model(run.server, run.initial)
    assert torch.equal(run.log[-1].after_agg[1].params, common.params)
    double = Simulation("fedrod", blobs([9]), personal_init="copy", rounds=1)
    head = double.context.layout.mask("head")
    assert torch.equal(double.personal(0).params[head], 2 * double.initial.params[head])


def test_a_head_of_two_layers_cannot_be_added_to_another():
    module = Mlp()
    module.head = nn.Sequential(module.head, nn.Linear(4, 4))
    with pytest.raises(ConfigError, match="a classifier that is one linear layer"):
        Simulation("fedrod", blobs([9]), module=module)
