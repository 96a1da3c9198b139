"""fedper: what the specification promises."""

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.methods.fedper import FedPer
from fedbench.methods.messages import Upload
from tests.methods.simulator import Mlp, Product, Quadratic, Simulation, assert_same, blobs, close, targets


class NothingPrivate(FedPer):
    def private(self, layout):
        return layout.nothing()


def test_body_and_head_are_trained_in_the_same_step():
    train = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}
    for epochs, value in ((1, 1.1), (2, 1.1869)):
        run = Simulation("fedper", targets(1.0), module=Product(), train={**train, "epochs": epochs}).run(1)
        assert close(run.log[0].after_fit[0].params, [value, value], digits=4)


def test_bodies_are_averaged_by_images():
    run = Simulation("fedper", blobs([1, 3]))
    none = torch.zeros(0)
    body = [torch.tensor([1.0, 2.0]), torch.tensor([4.0, 6.0])]
    uploads = [
        Upload(i, n, params=b, buffers=none, counters=none) for i, (b, n) in enumerate(zip(body, (1, 3), strict=True))
    ]
    run.method.aggregate(run.server, uploads)
    assert close(run.server.params, [3.25, 5])


def test_after_agg_is_the_new_body_with_the_own_head():
    run = Simulation("fedper", blobs([9, 17]), module=Mlp(norm=True)).run(3)
    head = run.context.layout.mask("head")
    for seen in run.log:
        assert torch.equal(seen.after_agg[0].params[~head], seen.after_agg[1].params[~head])
        assert torch.equal(seen.after_agg[0].buffers, seen.after_agg[1].buffers)
        for i in (0, 1):
            assert torch.equal(seen.after_agg[i].params[head], seen.after_fit[i].params[head])
    assert not torch.equal(run.log[0].after_agg[0].params[head], run.log[0].after_agg[1].params[head])


def test_a_client_that_returns_has_its_old_head_and_the_newest_body():
    run = Simulation("fedper", blobs([9, 17, 12]), draw=lambda t: [0, 1, 2] if t == 1 else [0, 1]).run(3)
    head = run.context.layout.mask("head")
    assert torch.equal(run.log[2].after_agg[2].params[head], run.log[0].after_fit[2].params[head])
    assert torch.equal(run.log[2].after_agg[2].params[~head], run.log[2].after_agg[0].params[~head])


@pytest.mark.parametrize("norm", [False, True])
def test_with_nothing_private_it_is_fedavg(norm):
    draw = lambda t: [t % 3, 2] if t % 3 != 2 else [0]  # noqa: E731
    runs = [Simulation(m, blobs([9, 17, 12]), module=Mlp(norm), draw=draw).run(4) for m in (NothingPrivate, "fedavg")]
    assert_same(*runs)


@pytest.mark.parametrize("norm", [False, True])
def test_bytes_are_those_of_the_body(norm):
    for classes in (4, 40):
        run = Simulation("fedper", blobs([9, 17]), module=Mlp(norm, classes=classes)).run(2)
        layout = run.context.layout
        body = 4 * (layout.size - 6 * classes + layout.buffer_size)
        assert all(set(seen.up.values()) == set(seen.down.values()) == {body} for seen in run.log)


def test_the_server_holds_no_head():
    run = Simulation("fedper", blobs([9, 17])).run(1)
    assert len(run.server.params) == run.context.layout.size - 24
    assert run.method.global_model(run.server, run.initial) is None


def test_further_private_layers_keep_their_statistics():
    run = Simulation("fedper", blobs([9, 17]), module=Mlp(norm=True), extra_private=["body.1"]).run(2)
    norm = run.context.layout.mask("norm")
    for i in (0, 1):
        assert torch.equal(run.log[1].after_agg[i].params[norm], run.log[1].after_fit[i].params[norm])
        assert torch.equal(run.log[1].after_agg[i].buffers, run.log[1].after_fit[i].buffers)
    assert run.log[0].up[0] == 4 * (run.context.layout.size - 24 - 10)


def test_unknown_layers_are_refused():
    with pytest.raises(ConfigError, match="no parameter of the model is under 'boddy'"):
        Simulation("fedper", blobs([9]), extra_private=["boddy"])


def test_a_model_without_a_head_is_refused():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("fedper", targets(1.0), module=Quadratic())


def test_heads_may_be_drawn_anew_by_every_client():
    run = Simulation("fedper", blobs([9, 17]), head_init="own", train={"epochs": 0}).run(1)
    head = run.context.layout.mask("head")
    first, second, start = (w.params for w in (run.log[0].after_fit[0], run.log[0].after_fit[1], run.initial))
    assert torch.equal(first[~head], start[~head])
    assert len({tuple(p[head].tolist()) for p in (first, second, start)}) == 3
    assert first[head].abs().max() <= 5**-0.5
    again = Simulation("fedper", blobs([9, 17]), head_init="own", train={"epochs": 0}).run(1)
    assert_same(run, again)


@pytest.mark.parametrize("head_init", ["common", "own"])
def test_who_never_trained_is_evaluated_with_the_head_that_it_has(head_init):
    run = Simulation("fedper", blobs([9, 17]), head_init=head_init)
    client, start = run.client(1, 0), run.initial
    untrained = run.method.idle_model(client)
    assert torch.equal(untrained.params, run.personal(1).params)
    assert torch.equal(untrained.params, start.params) == (head_init == "common")
