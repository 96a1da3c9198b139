"""lg-fedavg: what the specification promises."""

import pytest
import torch

from fedbench.aggregation.rules.fedadam import FedAdam
from fedbench.errors import ConfigError
from fedbench.methods.fedper import FedPer
from fedbench.methods.messages import Upload
from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_same, blobs, close, equal, targets

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731


class PrivateBody(FedPer):
    def private(self, layout):
        return layout.masks("body")


@pytest.mark.parametrize(("weighting", "mean"), [("samples", (1, 1)), ("uniform", (0.5, 1.5))])
def test_heads_are_averaged_by_images_or_uniformly(weighting, mean):
    run = Simulation("lg-fedavg", blobs([2, 1]), weighting=weighting)
    none = torch.zeros(0)
    heads = [torch.tensor([2.0, 0.0]), torch.tensor([-1.0, 3.0])]
    uploads = [
        Upload(i, n, params=h, buffers=none, counters=none) for i, (h, n) in enumerate(zip(heads, (2, 1), strict=True))
    ]
    run.server.round = 1
    run.method.aggregate(run.server, uploads)
    assert close(run.server.params, mean)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("draw", [None, SOME])
def test_it_is_fedper_with_the_other_part_private(norm, draw):
    runs = [Simulation(m, blobs([9, 17, 12]), module=Mlp(norm), draw=draw).run(4) for m in ("lg-fedavg", PrivateBody)]
    assert_same(*runs)
    assert [seen.up for seen in runs[0].log] == [seen.up for seen in runs[1].log]


def test_after_agg_is_the_own_body_under_the_new_head():
    run = Simulation("lg-fedavg", blobs([9, 17]), module=Mlp(norm=True)).run(3)
    head = run.context.layout.mask("head")
    for seen in run.log:
        assert torch.equal(seen.after_agg[0].params[head], seen.after_agg[1].params[head])
        for i in (0, 1):
            assert torch.equal(seen.after_agg[i].params[~head], seen.after_fit[i].params[~head])
            assert torch.equal(seen.after_agg[i].buffers, seen.after_fit[i].buffers)
            assert torch.equal(seen.after_agg[i].counters, seen.after_fit[i].counters)
    assert not torch.equal(run.log[0].after_agg[0].params[~head], run.log[0].after_agg[1].params[~head])


def test_a_client_that_returns_has_its_old_body_and_the_newest_head():
    run = Simulation("lg-fedavg", blobs([9, 17, 12]), draw=lambda t: [0, 1, 2] if t == 1 else [0, 1]).run(3)
    head = run.context.layout.mask("head")
    assert torch.equal(run.log[2].after_agg[2].params[~head], run.log[0].after_fit[2].params[~head])
    assert torch.equal(run.log[2].after_agg[2].params[head], run.log[2].after_agg[0].params[head])


@pytest.mark.parametrize("norm", [False, True])
def test_bytes_are_those_of_the_head(norm):
    for classes in (4, 40):
        run = Simulation("lg-fedavg", blobs([9, 17]), module=Mlp(norm, classes=classes)).run(2)
        assert all(set(seen.up.values()) == set(seen.down.values()) == {4 * 6 * classes} for seen in run.log)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("buffers", ["average", "private"])
@pytest.mark.parametrize("more", [{}, {"extra_shared": ["body"]}])
def test_only_pretraining_is_fedavg(norm, buffers, more):
    draw = lambda t: [0, 2] if t % 2 else [0]  # noqa: E731
    runs = [
        Simulation(m, blobs([9, 17, 12]), module=Mlp(norm), draw=draw, rounds=4, buffers=buffers, **options).run(4)
        for m, options in (("lg-fedavg", {"pretrain_rounds": 4, **more}), ("fedavg", {}))
    ]
    assert_same(*runs)
    assert [seen.up for seen in runs[0].log] == [seen.up for seen in runs[1].log]
    assert [seen.down for seen in runs[0].log] == [seen.down for seen in runs[1].log]


def test_after_pretraining_every_client_owns_the_averaged_model():
    draw = lambda t: [0, 1] if t < 4 else [1, 2]  # noqa: E731
    run = Simulation("lg-fedavg", blobs([9, 17, 12, 8]), module=Mlp(norm=True), draw=draw, pretrain_rounds=2).run(4)
    fedavg = Simulation("fedavg", blobs([9, 17, 12, 8]), module=Mlp(norm=True), draw=draw).run(2)
    head = run.context.layout.mask("head")
    base = fedavg.log[1].after_agg[0]
    assert all(equal(run.log[1].after_agg[i], base) for i in range(4))
    trained = run.log[2].after_fit[0]
    assert not torch.equal(trained.params[~head], base.params[~head])
    for t, own in ((2, {0, 1}), (3, {0, 1, 2})):
        for i in set(range(4)) - own:
            left = run.log[t].after_agg[i]
            assert torch.equal(left.params[~head], base.params[~head])
            assert torch.equal(left.buffers, base.buffers)
            assert torch.equal(left.counters, base.counters)
    assert torch.equal(run.log[3].after_agg[0].params[~head], trained.params[~head])
    assert torch.equal(run.log[3].after_agg[3].params[head], run.log[3].after_agg[0].params[head])


def test_the_first_fit_after_pretraining_is_fedavgs_next():
    run = Simulation("lg-fedavg", blobs([9, 17]), module=Mlp(norm=True), pretrain_rounds=2, rounds=3).run(3)
    fedavg = Simulation("fedavg", blobs([9, 17]), module=Mlp(norm=True)).run(3)
    assert all(equal(run.log[2].after_fit[i], fedavg.log[2].after_fit[i]) for i in (0, 1))
    assert not equal(run.log[2].after_agg[0], fedavg.log[2].after_agg[0])


def test_an_aggregator_forgets_the_whole_model_with_the_first_round_of_heads():
    rule = FedAdam(FedAdam.Options(), "fedadam")
    run = Simulation("lg-fedavg", blobs([9, 17]), pretrain_rounds=2, aggregator=rule).run(2)
    assert {len(moment) for moment in run.server.aggregator.values()} == {run.context.layout.size}
    assert {len(moment) for moment in run.run(1).server.aggregator.values()} == {24}
    before = {key: moment.clone() for key, moment in run.server.aggregator.items()}
    assert any(not torch.equal(before[key], moment) for key, moment in run.run(1).server.aggregator.items())


def test_bytes_of_pretraining_are_fedavgs():
    run = Simulation("lg-fedavg", blobs([9, 17]), module=Mlp(norm=True), pretrain_rounds=2).run(4)
    layout = run.context.layout
    whole, head = 4 * (layout.size + layout.buffer_size), 4 * 24
    assert [set(seen.up.values()) for seen in run.log] == [{whole}, {whole}, {head}, {head}]
    assert [set(seen.down.values()) for seen in run.log] == [{whole}, {whole}, {head}, {head}]


def test_the_server_holds_no_body_once_every_client_has_one():
    run = Simulation("lg-fedavg", blobs([9, 17, 12]), draw=lambda t: [0, 1, 2] if t != 3 else [0], pretrain_rounds=2)
    run.run(3)
    assert run.server.waiting == [1, 2]
    run.run(1)
    assert len(run.server.params) == 24
    assert not run.server.start
    assert run.method.global_model(run.server, run.initial) is None
    plain = Simulation("lg-fedavg", blobs([9, 17]))
    assert len(plain.server.params) == 24
    assert not plain.server.start


def test_further_shared_layers_share_their_statistics():
    run = Simulation("lg-fedavg", blobs([9, 17]), module=Mlp(norm=True), extra_shared=["body.1"]).run(2)
    layout = run.context.layout
    shared = layout.mask("norm") | layout.mask("head")
    one, other = (run.log[1].after_agg[i] for i in (0, 1))
    assert torch.equal(one.params[shared], other.params[shared])
    assert torch.equal(one.buffers, other.buffers)
    assert not torch.equal(one.params[~shared], other.params[~shared])
    assert run.log[0].up[0] == 4 * (24 + 10 + 10)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match=r"method.pretrain_rounds = 4: a run has 3 rounds"):
        Simulation("lg-fedavg", blobs([9]), rounds=3, pretrain_rounds=4)
    with pytest.raises(ConfigError, match="no parameter of the model is under 'boddy'"):
        Simulation("lg-fedavg", blobs([9]), extra_shared=["boddy"])
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("lg-fedavg", targets(1.0), module=Quadratic())
