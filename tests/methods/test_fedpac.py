"""fedpac: what the specification promises."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from fedbench.aggregation import mixes as mixing
from fedbench.aggregation.mixes import head_mixes, without_small
from fedbench.engine.fit import Amount, Move
from fedbench.errors import ConfigError
from fedbench.methods.fedpac import class_means, feature_target_loss, global_centroids, head_statistics
from fedbench.methods.fedper import FedPer
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_same, blobs, close, equal, targets

SIZES = [9, 17, 12, 30]
FEATURES = [
    (torch.tensor([[1.0, 0], [3, 2], [0, 1]]), torch.tensor([0, 0, 1])),
    (torch.tensor([[0.0, 2], [1, 1]]), torch.tensor([1, 1])),
    (torch.tensor([[2.0, 1], [2, 0], [1, 1], [0, 0]]), torch.tensor([0, 0, 1, 1])),
]


class HeadThenBody(FedPer):
    """Two phases on the hooks alone: the head with the body's norms frozen, then the body (FedRep's training)."""

    def train(self, client, received):
        head = self.context.layout.mask("head")
        tuned = client.fit(received, client.train, "head", Amount(epochs=1), Move(head, frozen="norm_eval"))
        return self.upload(client, client.fit(tuned, client.train, "body", Amount(epochs=5), Move(~head)))


def run(rounds=3, norm=False, sizes=SIZES, **options) -> Simulation:
    draw, train = options.pop("draw", None), options.pop("train", None)
    return Simulation("fedpac", blobs(sizes), module=Mlp(norm), draw=draw, train=train, **options).run(rounds)


def statistics(clients=FEATURES):
    found = [head_statistics(z.double(), y, 2) for z, y in clients]
    return np.stack([f["moments"].numpy().ravel() for f in found]), np.array([float(f["spread"]) for f in found])


def programme(moments, spreads, i):
    """P_i, entry by entry."""
    far = moments - moments[i]
    return far @ far.T + np.diag(spreads)


def test_statistics_of_a_head():
    moments, spreads = statistics()
    assert close(moments[0], [1.333333, 0.666667, 0, 0.333333])
    assert close(moments[1], [0, 0, 0.5, 1.5])
    assert close(moments[2], [1, 0.25, 0.25, 0.25])
    assert close(spreads, [0.888889, 0.25, 0.390625])


def test_a_client_of_one_sample_has_no_spread():
    found = head_statistics(torch.tensor([[0.1, 0.7, 3.3]], dtype=torch.float64), torch.tensor([1]), 2)
    assert float(found["spread"]) == 0
    assert close(found["moments"], [0, 0, 0, 0.1, 0.7, 3.3])


def test_programmes(monkeypatch):
    seen = []
    monkeypatch.setattr(mixing, "simplex_minimum", lambda p: seen.append(p) or np.ones(len(p)) / len(p))
    head_mixes(*statistics(), 0)
    assert close(seen[0], [0.888889, 0, 0, 0, 4.083333, 0.75, 0, 0.75, 0.744792])
    assert close(seen[1], [4.722222, 0, 3.083333, 0, 0.25, 0, 3.083333, 0, 3.078125])
    assert close(seen[2], [1.243056, -0.395833, 0, -0.395833, 2.9375, 0, 0, 0, 0.390625])


def test_mixes():
    mixes = head_mixes(*statistics(), 1e-3)
    assert close(mixes, [0.455898, 0, 0.544102, 0, 0.924883, 0.075117, 0.239483, 0.117746, 0.642772])


def test_small_weights_are_dropped_and_the_rest_sums_to_one():
    raw = mixing.simplex_minimum(np.diag([1.0, 2000, 3]))
    assert close(raw, [0.749719, 0.000375, 0.249906])
    assert without_small(raw, 1e-3).tolist() == pytest.approx([0.75, 0, 0.25], abs=1e-12)
    assert without_small(np.array([0.5, 0.25, 0.25]), 0.25).tolist() == [1, 0, 0]


@pytest.mark.parametrize(("reduction", "value"), [("mean", 0.833333), ("sum", 1.666667)])
def test_alignment(reduction, value):
    z = torch.tensor([[1.0, 0], [3, 2], [0, 1]], requires_grad=True)
    centroids = torch.tensor([[2.0, 1], [0, 0]])
    net = SimpleNet(z)
    state = SimpleNamespace(targets=centroids, weight=torch.tensor(1.0 if reduction == "mean" else 2.0), head="head")
    loss = feature_target_loss(net, (z, torch.tensor([0, 0, 1])), state)
    assert close(loss.detach(), [value])
    loss.backward()
    gradient = torch.tensor([[-1, -1], [1, 1], [0, 1]]) / 3 * (1 if reduction == "mean" else 2)
    assert close(z.grad, gradient.flatten().tolist())


class SimpleNet(Mlp):
    """A loss of its own of 0, and features that are the input."""

    def __init__(self, z):
        super().__init__()
        self.head = torch.nn.Linear(z.shape[1], 2)

    def training_step(self, batch):
        return self.head(batch[0]).sum() * 0


def test_centroids():
    locals_ = [torch.tensor([[2.0, 1], [0, 0], [0, 0]]), torch.tensor([[1.0, 0], [3, 3], [0, 0]])]
    found = global_centroids(locals_, [torch.tensor([2.0, 0, 0]), torch.tensor([4.0, 5, 0])])
    assert close(found[:2], [1.333333, 0.333333, 3, 3])
    assert found[2].isnan().all()


clients = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 2)), min_size=1, max_size=6),
        min_size=n,
        max_size=n,
    )
)


@given(clients, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_mixes_are_on_the_simplex_and_best_and_move_with_the_clients(data, random):
    features = [(torch.tensor([r[:2] for r in rows]), torch.tensor([r[2] for r in rows])) for rows in data]
    found = [head_statistics(z.double(), y, 3) for z, y in features]
    moments = np.stack([f["moments"].numpy().ravel() for f in found])
    spreads = np.array([float(f["spread"]) for f in found]) + 0.01
    mixes = head_mixes(moments, spreads, 0)
    assert (mixes >= 0).all()
    assert np.allclose(mixes.sum(1), 1, atol=1e-12)
    for i, mix in enumerate(mixes):
        gradient = programme(moments, spreads, i) @ mix
        assert np.allclose(gradient[mix > 0], gradient.min(), atol=1e-7)  # optimal: no other client would help more
    order = random.sample(range(len(data)), len(data))
    assert np.allclose(head_mixes(moments[order], spreads[order], 0), mixes[np.ix_(order, order)], atol=1e-8)


def test_equal_clients_are_mixed_evenly():
    moments, _ = statistics([FEATURES[2]] * 4)
    assert np.allclose(head_mixes(moments, np.full(4, 0.3), 1e-3), 0.25, atol=1e-12)
    assert np.allclose(head_mixes(moments, np.zeros(4), 1e-3), 0.25, atol=1e-12)


def test_the_number_of_threads_changes_no_bit():
    moments = np.random.default_rng(0).normal(size=(100, 40))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(head_mixes(moments, np.full(100, 0.1), 0))
    assert np.array_equal(*found)


def test_a_programme_without_solution_leaves_the_own_head(monkeypatch):
    def fails(p):
        if p[0, 0] < 1:
            raise np.linalg.LinAlgError
        return np.array([0, 0.5, 0.5])

    monkeypatch.setattr(mixing, "simplex_minimum", fails)
    assert head_mixes(*statistics(), 0).tolist() == [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]


@given(st.lists(st.integers(0, 4), min_size=2, max_size=2))
def test_a_client_without_a_class_does_not_change_its_centroid(counts):
    a, b = torch.tensor([[2.0, 1], [4, 4]]), torch.tensor([[1.0, 0], [0, 0]])
    counts = torch.tensor([float(counts[0]), float(counts[1])])
    found = global_centroids([a, b], [counts, torch.tensor([3.0, 0])])
    assert torch.equal(found[1], a[1]) if counts[1] else found[1].isnan().all()


def test_a_bias_that_all_heads_share_is_in_every_mix():
    made = run(1)
    uploads = [made.log[0].uploads[i] for i in range(4)]
    before = {i: h.clone() for i, h in made.server.heads.items()}
    for u in uploads:
        u.tensors["head"] = u.head + torch.tensor([0.0] * 20 + [0.5] * 4)
    made.method.aggregate(made.server, uploads)
    for i, head in made.server.heads.items():
        assert torch.allclose(head[:20], before[i][:20])
        assert torch.allclose(head[20:], before[i][20:] + 0.5)


def test_without_alignment_and_mixing_it_is_head_then_body():
    shared = {"draw": lambda t: [0, 1, 2] if t == 1 else [t % 2, 3], "train": {"momentum": 0}}
    mine = run(3, norm=True, lam=0, classifier="local", head_lr=0.1, **shared)
    other = Simulation(HeadThenBody, blobs(SIZES), module=Mlp(norm=True), **shared).run(3)
    assert_same(mine, other)
    assert [seen.up for seen in mine.log] == [seen.up for seen in other.log]
    assert [seen.down for seen in mine.log] == [seen.down for seen in other.log]


def test_one_client_is_local_training():
    made = run(3, norm=True, sizes=[17])
    assert all(equal(seen.after_fit[0], seen.after_agg[0]) for seen in made.log)
    assert all(seen.traces[0, "own_weight"] == 1 for seen in made.log)


def test_what_is_uploaded_and_when_it_is_computed():
    made = run(2, norm=True)
    head = made.context.layout.mask("head")
    for i, upload in made.log[1].uploads.items():
        received, trained = made.log[0].after_agg[i], made.log[1].after_fit[i]
        data = made.client(i, 2).train
        before = head_statistics(made.learner.features(received, data).double(), data.labels, 4)
        after, counts = class_means(made.learner.features(trained, data).double(), data.labels, 4)
        assert torch.equal(upload.moments, before["moments"].float())
        assert torch.equal(upload.spread, before["spread"].float())
        assert torch.equal(upload.centroids, after.float())
        assert upload.counts.tolist() == counts.tolist() == data.labels.bincount(minlength=4).tolist()
        assert torch.equal(upload.head, trained.params[head])
        assert torch.equal(upload.params, trained.params[~head])


def test_after_agg_is_the_mean_body_with_the_own_mix_of_trained_heads():
    made = run(2)
    head = made.context.layout.mask("head")
    for seen in made.log:
        trained = torch.stack([seen.after_fit[i].params for i in range(4)]).double()
        mixes = torch.tensor([[seen.traces[i, f"head_weight/{j}"] for j in range(4)] for i in range(4)]).double()
        body = (trained[:, ~head] * torch.tensor(SIZES)[:, None]).sum(0) / sum(SIZES)
        for i in range(4):
            assert torch.allclose(seen.after_agg[i].params[~head].double(), body, atol=1e-6)
            assert torch.allclose(seen.after_agg[i].params[head].double(), mixes[i] @ trained[:, head], atol=1e-6)
    assert len({tuple(w.params[head].tolist()) for w in made.log[0].after_agg.values()}) > 1


@pytest.mark.parametrize("classifier", ["combined", "average"])
def test_who_sits_out_keeps_its_head_and_takes_the_newest_body(classifier):
    made = run(3, norm=True, classifier=classifier, draw=lambda t: [0, 1, 3] if t == 1 else [0, 1])
    head = made.context.layout.mask("head")
    first, last = made.log[0].after_agg, made.log[2].after_agg
    assert torch.equal(last[3].params[head], first[3].params[head])
    assert torch.equal(last[2].params[head], made.initial.params[head])
    assert not torch.equal(last[0].params[head], first[0].params[head])
    assert classifier == "combined" or torch.equal(last[0].params, made.server.params)
    assert all(torch.equal(last[i].params[~head], last[0].params[~head]) for i in (1, 2, 3))
    assert all(torch.equal(last[i].buffers, last[0].buffers) for i in (1, 2, 3))
    back = made.method.receive(made.client(3, 3))
    assert equal(back, last[3]), "what it trains from when it returns"


def test_heads_are_those_of_the_participants_whatever_their_numbers():
    made = run(1, draw=lambda t: [1, 3])
    head = made.context.layout.mask("head")
    (a, b), mix = (made.log[0].uploads[i].head for i in (1, 3)), made.log[0].traces
    expected = mix[3, "head_weight/1"] * a.double() + mix[3, "head_weight/3"] * b.double()
    assert torch.allclose(made.log[0].after_agg[3].params[head].double(), expected, atol=1e-7)
    assert set(made.server.heads) == {1, 3}


def test_only_the_head_moves_in_its_phase_and_the_body_in_its_own():
    made = run(1, norm=True, body_epochs=0)
    head = made.context.layout.mask("head")
    trained, start = made.log[0].after_fit[1], made.initial
    assert torch.equal(trained.params[~head], start.params[~head])
    assert torch.equal(trained.buffers, start.buffers)
    assert not torch.equal(trained.params[head], start.params[head])
    body = run(1, norm=True, head_epochs=0).log[0].after_fit[1]
    assert torch.equal(body.params[head], start.params[head])
    assert not torch.equal(body.params[~head], start.params[~head])
    assert not torch.equal(body.buffers, start.buffers)


def test_alignment_begins_in_round_2_and_falls_back_on_own_means():
    made = Simulation("fedpac", blobs(SIZES), module=Mlp())
    made.round()
    plain = run(1, lam=0)
    assert all(equal(made.log[0].after_fit[i], plain.log[0].after_fit[i]) for i in range(4))
    mine = int(made.data[0].labels[0])
    made.server.centroids[mine] = torch.nan
    client = made.client(0, 1)
    received = made.method.receive(client)
    _, alignment = made.method.statistics_and_alignment(client, received)
    own, _ = class_means(made.learner.features(received, client.train).double(), client.train.labels, 4)
    aims = alignment.needs["targets"]
    others = [k for k in range(4) if k != mine]
    assert own[mine].any()
    assert torch.equal(aims[mine], own[mine].float())
    assert torch.equal(aims[others], made.server.centroids[others])
    assert not aims.requires_grad


@pytest.mark.parametrize(("reduction", "weight"), [("mean", 0.3), ("sum", 0.3 * 5)])
def test_the_weight_of_the_mean_over_elements_by_reduction(reduction, weight):
    made = run(1, lam=0.3, align_reduction=reduction)
    client = made.client(0, 1)
    _, alignment = made.method.statistics_and_alignment(client, made.method.receive(client))
    assert alignment.needs["weight"] == pytest.approx(weight)


def test_body_weights_are_no_weights_of_centroids():
    made, uniform = run(1), run(1, weighting="uniform")
    assert torch.equal(made.server.centroids, uniform.server.centroids)
    assert not torch.equal(made.server.params, uniform.server.params)


def test_a_mean_head_is_averaged_like_the_body():
    made = run(2, norm=True, classifier="average")
    seen = made.log[1]
    trained = torch.stack([seen.after_fit[i].params for i in range(4)]).double()
    mean = (trained * torch.tensor(SIZES)[:, None]).sum(0) / sum(SIZES)
    assert all(torch.allclose(w.params.double(), mean, atol=1e-6) for w in seen.after_agg.values())
    assert isinstance(made.method.global_model(made.server, made.initial), Weights)
    own = run(1)
    assert own.method.global_model(own.server, own.initial) is None


def test_bytes():
    made = run(2, norm=True)
    size, stats, d, c = made.context.layout.size, made.context.layout.buffer_size, 5, 4
    for t, seen in enumerate(made.log):
        assert set(seen.up.values()) == {4 * (size + stats + 2 * c * d + c + 1)}
        assert set(seen.down.values()) == {4 * (size + stats + (c * d if t else 0))}


def test_ablations_send_what_they_use():
    size, d, c = 6 * 5 + 5 + 24, 5, 4
    found = {
        (lam, kind): (seen.up[0], seen.down[0])
        for lam in (0, 1)
        for kind in ("combined", "local", "average")
        for seen in [run(2, lam=lam, classifier=kind).log[1]]
    }
    assert found[0, "combined"] == (4 * (size + c * d + 1), 4 * size)
    assert found[0, "local"] == (4 * (size - 24), 4 * (size - 24))
    assert found[0, "average"] == (4 * size, 4 * size)
    assert found[1, "local"] == (4 * (size - 24 + c * d + c), 4 * (size - 24 + c * d))
    assert found[1, "average"] == (4 * (size + c * d + c), 4 * (size + c * d))


def test_optimisers_are_fresh_unless_kept_one_for_each_phase():
    made = run(2, train={"keep_optimizer": True})
    assert set(made.states[0].optimizers) == {"head", "body"}
    assert not run(2).states[0].optimizers
    assert not equal(made.log[1].after_fit[0], run(2).log[1].after_fit[0])


def test_a_threshold_that_could_drop_every_head_is_refused():
    with pytest.raises(ConfigError, match=r"head_weight_eps = 0.25: with 4 participants a round it must be below 0.25"):
        run(1, head_weight_eps=0.25)
    run(1, head_weight_eps=0.25, draw=lambda t: [0, 1])


def test_a_model_without_a_head_is_refused():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("fedpac", targets(1.0), module=Quadratic())


def test_weights_of_many_participants_are_not_traced_pair_by_pair():
    crowd = run(1, sizes=[4] * 21, body_epochs=0)
    assert {name for _, name in crowd.log[0].traces} == {"own_weight", "collaborators"}
    few = run(1)
    mix = [few.log[0].traces[2, f"head_weight/{j}"] for j in range(4)]
    assert few.log[0].traces[2, "own_weight"] == mix[2]
    assert few.log[0].traces[2, "collaborators"] == np.count_nonzero(mix[:2] + mix[3:])
    fewer = run(2, draw=lambda t: range(4) if t == 1 else [0, 1])
    assert {client for client, _ in fewer.log[1].traces} == {0, 1}
