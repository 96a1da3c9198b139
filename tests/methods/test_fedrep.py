"""fedrep: what the specification promises."""

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

from fedbench.engine.fit import Amount, Move
from fedbench.errors import ConfigError
from fedbench.methods.base import Method
from fedbench.methods.messages import Upload
from tests.methods.simulator import (
    Mlp,
    Product,
    Quadratic,
    Simulation,
    accuracy_of,
    assert_same,
    blobs,
    close,
    equal,
    targets,
)

PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}
FEW = {"head_epochs": 2, "body_epochs": 1}
MOMENTUM = {"momentum": 0.5, "weight_decay": 0.1}


class BodyOnly(Method):
    """FedAvg of the body under a head that never moves."""

    class Options(Method.Options):
        weighting: str = "uniform"

    train_defaults = {"weight_decay": 0.0}  # noqa: RUF012

    def train(self, client, received):
        body = Move(self.context.layout.mask("body"))
        return self.upload(client, client.fit(received, client.train, "body", Amount(epochs=2), body))


class Tied(LightningModule):
    """Head and body share a weight; the head is the first to own it, or the last."""

    def __init__(self, head_first) -> None:
        super().__init__()
        torch.manual_seed(1)
        body, head = nn.Linear(6, 6), nn.Linear(6, 6)
        head.weight = body.weight
        for name in ("head", "body") if head_first else ("body", "head"):
            setattr(self, name, {"head": head, "body": body}[name])

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)


def test_the_head_is_trained_first_and_then_the_body():
    run = Simulation("fedrep", targets(1.0), module=Product(), train=PLAIN, **FEW).run(1)
    assert close(run.log[0].after_fit[0].params, [1.096390, 1.19])
    one = Simulation("fedrep", targets(1.0), module=Product(), train=PLAIN, head_epochs=1, body_epochs=0).run(1)
    assert close(one.log[0].after_fit[0].params, [1.0, 1.1])


def test_the_body_may_come_first():
    run = Simulation("fedrep", targets(1.0), module=Product(), train=PLAIN, order="body_first", **FEW).run(1)
    body, head = 1.1, 1.0
    for _ in range(2):
        head -= 0.1 * (head * body - 2) * body
    assert close(run.log[0].after_fit[0].params, [body, head])


@pytest.mark.parametrize(("weighting", "mean"), [("uniform", (2.5, 4)), ("samples", (3.25, 5))])
def test_bodies_are_averaged_uniformly_or_by_images(weighting, mean):
    run = Simulation("fedrep", blobs([1, 3]), weighting=weighting)
    none = torch.zeros(0)
    body = [torch.tensor([1.0, 2.0]), torch.tensor([4.0, 6.0])]
    uploads = [
        Upload(i, n, params=b, buffers=none, counters=none) for i, (b, n) in enumerate(zip(body, (1, 3), strict=True))
    ]
    run.method.aggregate(run.server, uploads)
    assert close(run.server.params, mean)
    assert Simulation("fedrep", blobs([1])).method.options.weighting == "uniform"


def test_each_phase_keeps_an_optimiser_of_its_own():
    run = Simulation("fedrep", blobs([9]), train={**MOMENTUM, "keep_optimizer": True}, **FEW).run(1)
    assert run.states[0].optimizers.keys() == {"head", "body"}


def test_what_is_frozen_keeps_its_bits():
    """Momentum and decay, fresh or kept, move nothing outside their phase."""
    train = {**MOMENTUM, "keep_optimizer": True}
    make = lambda **options: Simulation("fedrep", blobs([9, 17]), module=Mlp(True), train=train, **options)  # noqa: E731
    head = make().context.layout.mask("head")
    heads = make(head_epochs=3, body_epochs=0).run(3)
    for seen in heads.log:
        for i in (0, 1):
            start = heads.initial
            assert torch.equal(seen.after_fit[i].params[~head], start.params[~head])
            assert torch.equal(seen.after_fit[i].buffers, start.buffers)
            assert torch.equal(seen.after_fit[i].counters, start.counters)
            assert not torch.equal(seen.after_fit[i].params[head], start.params[head])
    both = make(head_epochs=3, body_epochs=2).run(1)
    for i in (0, 1):
        assert torch.equal(both.log[0].after_fit[i].params[head], heads.log[0].after_fit[i].params[head])
        assert not torch.equal(both.log[0].after_fit[i].params[~head], both.initial.params[~head])
    assert int(both.log[0].after_fit[0].counters) == 2
    bodies = make(head_epochs=0, body_epochs=2).run(3)
    for seen in bodies.log:
        assert torch.equal(seen.after_fit[0].params[head], bodies.initial.params[head])


def test_without_head_epochs_it_is_fedavg_of_the_body():
    runs = [
        Simulation(m, blobs([9, 17, 12]), module=Mlp(True), draw=lambda t: [t % 3, 2] if t % 3 < 2 else [0], **o).run(4)
        for m, o in (("fedrep", {"head_epochs": 0, "body_epochs": 2}), (BodyOnly, {}))
    ]
    assert_same(*runs)


def test_after_agg_is_the_new_body_with_the_own_trained_head():
    run = Simulation("fedrep", blobs([9, 17]), module=Mlp(norm=True), **FEW).run(3)
    head = run.context.layout.mask("head")
    for seen in run.log:
        assert torch.equal(seen.after_agg[0].params[~head], seen.after_agg[1].params[~head])
        assert torch.equal(seen.after_agg[0].buffers, seen.after_agg[1].buffers)
        for i in (0, 1):
            assert torch.equal(seen.after_agg[i].params[head], seen.after_fit[i].params[head])
    assert not torch.equal(run.log[0].after_agg[0].params[head], run.log[0].after_agg[1].params[head])


def test_heads_of_absent_clients():
    run = Simulation("fedrep", blobs([9, 17, 12, 8]), draw=lambda t: [0, 1, 2] if t == 1 else [0, 1], **FEW).run(3)
    head = run.context.layout.mask("head")
    seen = run.log[2].after_agg
    assert torch.equal(seen[2].params[head], run.log[0].after_fit[2].params[head])
    assert torch.equal(seen[3].params[head], run.initial.params[head])
    assert torch.equal(seen[3].params[~head], seen[0].params[~head])


def test_one_client_feels_no_averaging():
    run = Simulation("fedrep", blobs([21]), module=Mlp(norm=True), **FEW).run(3)
    assert all(equal(seen.after_fit[0], seen.after_agg[0]) for seen in run.log)


def test_epochs_are_epochs():
    run = Simulation("fedrep", blobs([17]), train={"epochs": 9}, head_epochs=3, body_epochs=2)
    run.round()
    assert run.learner.ledger.steps == 3 * 3 + 2 * 3


def test_phases_have_streams_of_their_own():
    def body(**options):
        run = Simulation("fedrep", blobs([30]), train={"batch_size": 4}, order="body_first", **options).run(1)
        return run.log[0].after_fit[0].params[run.context.layout.mask("body")]

    assert torch.equal(body(head_epochs=0), body(head_epochs=5))
    streams = []
    run = Simulation("fedrep", blobs([30]), **FEW)
    train = run.learner.fit
    run.learner.fit = lambda fit: streams.append(fit.stream) or train(fit)
    run.round()
    assert streams == ["head", "body"]


def test_the_heads_rate_is_its_own_and_decays():
    def head(lr_decay=1.0, **options):
        train = {**PLAIN, "lr_decay": lr_decay}
        run = Simulation("fedrep", targets(1.0), module=Product(), train=train, head_epochs=1, body_epochs=0, **options)
        return float(run.run(2).log[1].after_fit[0].params[1])

    assert head(head_lr=0.1) == head()
    for decay in (1.0, 0.5):
        first = 1 + 0.3
        assert close(head(decay, head_lr=0.3), [first + 0.3 * decay * (2 - first)])


def test_each_phase_keeps_its_momentum():
    train = {**PLAIN, "momentum": 0.5, "keep_optimizer": True}
    run = Simulation("fedrep", targets(1.0), module=Product(), train=train, head_epochs=1).run(3)
    body = head = 1.0
    body_momentum = head_momentum = 0.0
    for _ in range(3):
        head_momentum = 0.5 * head_momentum + (head * body - 2) * body
        head -= 0.1 * head_momentum
        body_momentum = 0.5 * body_momentum + (head * body - 2) * head
        body -= 0.1 * body_momentum
    assert close(run.log[2].after_fit[0].params, [body, head])


@pytest.mark.parametrize("head_first", [False, True])
def test_a_tensor_of_both_counts_as_body(head_first):
    run = Simulation("fedrep", blobs([9, 17]), module=Tied(head_first), head_epochs=2, body_epochs=0).run(1)
    assert run.method.private_params.size == 6
    moved = run.log[0].after_fit[0].params != run.initial.params
    assert torch.equal(moved, run.method.private_params.mask)
    assert run.log[0].up[0] == 4 * (36 + 6)


def test_bytes_are_those_of_the_body():
    for classes in (4, 40):
        run = Simulation("fedrep", blobs([9, 17]), module=Mlp(True, classes=classes), **FEW).run(2)
        layout = run.context.layout
        body = 4 * (layout.size - 6 * classes + layout.buffer_size)
        assert all(set(seen.up.values()) == set(seen.down.values()) == {body} for seen in run.log)
        assert len(run.server.params) == layout.size - 6 * classes
        assert run.method.global_model(run.server, run.initial) is None


def test_decay_is_off_unless_asked_for():
    assert Simulation("fedrep", blobs([9])).train.weight_decay == 0


def test_own_heads_win_where_labels_are_swapped():
    clients = blobs([60], seed=3) + blobs([60], seed=4, shift=1)
    tests = blobs([200], seed=5) + blobs([200], seed=6, shift=1)
    accuracy = {}
    for method, options in (("fedrep", {"head_epochs": 5}), ("fedavg", {})):
        run = Simulation(method, clients, module=Mlp(), train={"epochs": 1}, **options).run(8)
        scores = [accuracy_of(run.learner, run.log[-1].after_agg[i], tests[i]) for i in (0, 1)]
        accuracy[method] = sum(scores) / 2
    assert accuracy["fedrep"] > accuracy["fedavg"] + 0.2


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("fedrep", targets(1.0), module=Quadratic())


def test_a_newcomer_trains_a_head_alone():
    run = Simulation("fedrep", targets(1.0), module=Product(), train=PLAIN, **FEW)
    body, head = run.joined(targets(1.0)[0], 2).params
    assert body == 1
    assert close([head], [1.19])
