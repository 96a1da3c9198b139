"""pfedfda: what the specification promises."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from threadpoolctl import threadpool_limits
from torch import nn

from fedbench.engine.fit import Move
from fedbench.errors import ConfigError
from fedbench.methods.messages import Message
from fedbench.methods.parts.gaussians import (
    Gaussians,
    Moments,
    discriminant,
    label_prior,
    mixed_gaussians,
    packed_triangle,
    shrunk,
    statistics,
    unpacked_triangle,
)
from fedbench.methods.parts.interpolation import Fold, interpolated, split, validation
from fedbench.methods.pfedfda import PFedFDA
from tests.methods.simulator import Mlp, Quadratic, Simulation, blobs, close, equal, targets

SIZES = [9, 17, 12, 30]
HEAD = slice(-24, None)  # of the simulator's model: 4 classes of 5 features


def f64(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


F, Y = f64([[1, 0], [2, 1], [0, 1], [3, 2]]), torch.tensor([0, 0, 0, 1])
COMMON = Gaussians(f64([[0.5, 0.5], [1, 1]]), torch.eye(2, dtype=torch.float64))


def run(rounds=2, norm=False, sizes=SIZES, **options) -> Simulation:
    draw, train = options.pop("draw", None), options.pop("train", None)
    return Simulation("pfedfda", blobs(sizes), module=Mlp(norm), draw=draw, train=train, **options).run(rounds)


def logits(gaussians, prior, features):
    slopes, offsets = head_of(gaussians, prior)
    return features @ slopes.T + offsets


def head_of(gaussians, prior):
    slopes, offsets = discriminant(gaussians, 1e-4)
    return slopes, offsets + prior.log()


def statistics_of(features, labels, fallback, *rest):
    return whole(statistics([Moments.of(features, labels, len(fallback))], fallback, *rest))


def whole(gaussians):
    """With both triangles of the covariance."""
    upper = gaussians.covariance.triu()
    return Gaussians(gaussians.means, upper + upper.triu(1).T)


def test_the_prior_of_labels():
    assert close(label_prior(Y, 2, 1e-4), [0.749950, 0.250050])


def test_the_discriminant():
    given_ = Gaussians(f64([[1, 0], [0, 2]]), f64([[2, 0.5], [0.5, 1]]))
    slopes, offsets = head_of(given_, label_prior(Y, 2, 1e-4))
    assert close(slopes, [0.571424, -0.285669, -0.571339, 2.285527])
    assert close(offsets, [-0.573461, -3.671621])


def test_local_statistics():
    means, covariance = statistics_of(F, Y, COMMON.means, 2, 0, 0)
    assert close(means, [1, 0.666667, 1, 1])
    assert close(covariance, [2, 0.666667, 0.666667, 0.555556])
    assert close(statistics_of(F, Y, COMMON.means, 2, 1e-4, 1)[1], [3.0001, 0.666767, 0.666767, 1.555656])


def test_a_class_needs_more_rows_than_folds_for_a_mean_of_its_own():
    for least, mean in ((2, [1, 2 / 3]), (3, [0.5, 0.5]), (4, [0.5, 0.5])):
        assert close(statistics_of(F, Y, COMMON.means, least, 1e-4, 1).means[0], mean)


def test_adapted_statistics():
    adapted = mixed_gaussians([0.25, 0.5], statistics_of(F, Y, COMMON.means, 2, 1e-4, 1), COMMON)
    assert close(adapted.means, [0.625, 0.541667, 1, 1])
    assert close(adapted.covariance, [2.000050, 0.333383, 0.333383, 1.277828])


def test_statistics_of_parts_are_those_of_all_rows():
    """Also for classes that no part has enough rows of, or that a part has none of."""
    draw = torch.Generator().manual_seed(1)
    z, y = 50 + torch.randn(40, 3, dtype=torch.float64, generator=draw), torch.arange(40).sqrt().long()
    fallback, at_once = torch.rand(8, 3, dtype=torch.float64, generator=draw), Moments.of(z, y, 8)
    for parts in (z.split(7), (z[:9], z[9:9], z[9:])):
        sums = [
            Moments.of(part, labels, 8) for part, labels in zip(parts, y.split([len(p) for p in parts]), strict=True)
        ]
        for least in (0, 4, 9):
            for ours, all_rows in zip(
                *(statistics(s, fallback, least, 1e-4, 1) for s in (sums, [at_once])), strict=True
            ):
                assert torch.allclose(ours, all_rows, rtol=1e-12, atol=1e-12)
            means = torch.where((y.bincount(minlength=8) > least)[:, None], at_once.means, fallback)
            centred = z - means[y]
            expected = centred.T @ centred / 39 + 1e-4 + torch.eye(3, dtype=torch.float64)
            assert torch.allclose(
                whole(statistics([at_once], fallback, least, 1e-4, 1)).covariance, expected, rtol=1e-12
            )


def test_folds_are_dealt_class_by_class_in_row_order():
    y = torch.tensor([0, 1, 0, 0, 2, 1, 0, 1])
    rows = torch.arange(8).double()[:, None]
    for folds, places in (
        (2, [[0, 1, 3, 7], [2, 5, 6], [4]]),
        (3, [[0, 1, 6], [2, 5], [3, 7], [4]]),
        (5, [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ):
        dealt = split(rows, y, folds, 4)
        assert [z.flatten().tolist() for z, _ in dealt] == places
        assert all(torch.equal(y[z.flatten().long()], labels) for z, labels in dealt)


def problem(seed=0, count=40, spread=1.0):
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=draw)
    z = torch.randn(count, 2, dtype=torch.float64, generator=draw) + spread * f64([[0, 0], [2, 0], [0, 2]])[y]
    common = Gaussians(torch.rand(3, 2, dtype=torch.float64, generator=draw), f64([[1.5, 0.4], [0.4, 0.8]]))
    one, two, _ = split(z, y, 2, 3)
    folds = [(statistics_of(*rest, common.means, 2, 1e-4, 1), *held) for rest, held in ((two, one), (one, two))]
    start = shrunk(common, 1e-4)
    tries = [Fold.of(start, shrunk(local, 1e-4), *held) for local, *held in folds]
    return dict(folds=tries, start=start, prior=label_prior(y, 3, 1e-4)), common, folds, z, y


@pytest.mark.parametrize("x", [[0.3, 0.7], [0.5], [0.0, 1.0]])
def test_the_gradient_of_the_validation_is_exact(x):
    asked, *_ = problem()
    x = np.array(x)
    _, gradient = validation(x, **asked)
    for k in range(len(x)):
        nudge = np.eye(len(x))[k] * 1e-6
        slope = (validation(x + nudge, **asked)[0] - validation(x - nudge, **asked)[0]) / 2e-6
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_the_validation_sums_the_mean_losses_of_the_held_out_folds():
    asked, common, folds, _, _ = problem()
    total = 0.0
    for local, z, y in folds:
        adapted = Gaussians(*(0.25 * a + 0.75 * b for a, b in zip(local, common, strict=True)))
        total += float(nn.functional.cross_entropy(logits(adapted, asked["prior"], z), y))
    assert validation(np.array([0.25]), **asked)[0] == pytest.approx(total, rel=1e-12)
    assert validation(np.array([0.25, 0.25]), **asked)[0] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_solution_is_no_worse_than_a_grid(single, seed):
    asked, common, _, z, y = problem(seed)
    options = PFedFDA.Options(beta_max_iter=100, beta_gtol=1e-9, single_beta=single)
    _, betas = interpolated((z, y), common, asked["prior"], (0.5, 0.5), options)
    shares = np.linspace(0, 1, 11)
    grid = [[a] if single else [a, b] for a in shares for b in ([0.0] if single else shares)]
    best = min(validation(np.array(x), **asked)[0] for x in grid)
    assert validation(np.array(betas), **asked)[0] <= best + 1e-9
    assert all(0 <= b <= 1 for b in betas)
    assert betas[0] == betas[1] or not single


def test_rare_classes_have_no_part_in_the_weights():
    asked, common, _, z, y = problem()
    z, y, rare = z[y != 2], y[y != 2], (f64([[90, -70]]), torch.tensor([2]))
    more = torch.cat([z, rare[0]]), torch.cat([y, rare[1]])
    one, two = (interpolated(rows, common, asked["prior"], (0.5, 0.5), PFedFDA.Options()) for rows in ((z, y), more))
    assert one[1] == two[1] != (0.5, 0.5)
    assert not torch.equal(one[0].covariance, two[0].covariance)


def test_rare_classes_alone_leave_the_global_statistics():
    made = Simulation("pfedfda", blobs(SIZES))
    client, z = made.client(0, 1), torch.rand(4, 5, dtype=torch.float64)
    adapted, betas = made.method.adapted(client, z, torch.tensor([0, 1, 2, 3]))
    assert betas == (0, 0)
    assert all(torch.equal(*both) for both in zip(adapted, made.method.common(client), strict=True))


def test_a_solver_that_fails_leaves_the_last_weights():
    made = Simulation("pfedfda", blobs(SIZES))
    client, z = made.client(0, 1), torch.full((12, 5), torch.inf, dtype=torch.float64)
    labels = torch.arange(12) % 2
    assert made.method.adapted(client, z, labels)[1] == (0.5, 0.5)
    client.state.betas = (0.1, 0.9)
    assert made.method.adapted(client, z, labels)[1] == (0.1, 0.9)


def test_a_singular_covariance_gives_no_numbers():
    singular = Gaussians(torch.ones(2, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64))
    assert discriminant(singular, 1e-4)[0].isnan().all()


def test_a_covariance_that_is_not_positive_definite_is_solved_all_the_same():
    draw = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 5, dtype=torch.float64, generator=draw)
    matrix, means = matrix @ matrix.T, torch.randn(3, 5, dtype=torch.float64, generator=draw)
    matrix[-1, -1] -= 50  # found out at the last of its columns
    assert torch.linalg.eigvalsh(matrix).min() < -0.1
    slopes, _ = discriminant(Gaussians(means, matrix), 1e-4)
    used = (1 - 1e-4) * matrix + 1e-4 * matrix.trace() / 5 * torch.eye(5, dtype=torch.float64)
    assert torch.allclose(slopes @ used, means, atol=1e-12)


@pytest.mark.parametrize("definite", [True, False])
def test_nothing_below_the_diagonal_is_read(definite):
    asked, common, _, z, y = problem()
    if not definite:
        common.covariance.neg_()
    below = torch.full_like(common.covariance, torch.nan).tril(-1)
    half = Gaussians(common.means, common.covariance + below)
    for ours, theirs in zip(discriminant(half, 1e-4), discriminant(common, 1e-4), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(packed_triangle(half.covariance), packed_triangle(common.covariance))
    found = []
    for start, more in ((common, 0), (half, below)):
        start = shrunk(start, 1e-4)
        ends = (Gaussians(z[k : k + 3], torch.eye(2, dtype=torch.float64) * 2 + 0.5 + more) for k in (0, 3))
        tries = [Fold.of(start, end, z[k::2], y[k::2]) for k, end in enumerate(ends)]
        found.append(validation(np.array([0.3, 0.2]), tries, start, asked["prior"]))
    assert np.isfinite(found[0][0])
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])


samples = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.tuples(*[st.floats(-5, 5)] * 3, st.integers(0, 2)), min_size=n, max_size=n)
)


@given(samples, st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50)
def test_mixed_statistics_lie_between_and_can_be_solved(rows, a, b):
    z, y = f64([r[:3] for r in rows]), torch.tensor([r[3] for r in rows])
    draw = torch.Generator().manual_seed(0)
    common = Gaussians(torch.rand(3, 3, dtype=torch.float64, generator=draw), torch.eye(3, dtype=torch.float64))
    local = statistics_of(z, y, common.means, 2, 1e-4, 1)
    adapted = mixed_gaussians(f64([a, b]), local, common)
    for part, own, other in zip(adapted, local, common, strict=True):
        assert (part >= torch.minimum(own, other) - 1e-9).all()
        assert (part <= torch.maximum(own, other) + 1e-9).all()
    assert torch.allclose(adapted.covariance, adapted.covariance.T, atol=1e-12)
    assert torch.linalg.eigvalsh(adapted.covariance).min() > 0
    prior = label_prior(y, 3, 1e-4)
    assert float(prior.sum()) == pytest.approx(1, abs=1e-12)
    assert (prior > 0).all()
    scores = logits(adapted, prior, z)
    shifted = logits(adapted, 7 * prior, z)
    assert torch.allclose(scores.softmax(1), shifted.softmax(1), atol=1e-9)
    assert torch.equal(unpacked_triangle(packed_triangle(adapted.covariance), 3), adapted.covariance.triu())
    order = torch.argsort(y, stable=True).flip(0)
    again = statistics_of(z[order], y[order], common.means, 2, 1e-4, 1)
    assert torch.allclose(again.means, local.means)
    assert torch.allclose(again.covariance, local.covariance)


def test_with_weights_of_zero_the_global_statistics_stay():
    made = run(3, beta=0)
    start = Simulation("pfedfda", blobs(SIZES), beta=0).server
    assert torch.allclose(made.server.means, start.means, rtol=0, atol=1e-12)
    assert torch.allclose(made.server.covariance, start.covariance, rtol=0, atol=1e-12)
    for i, fitted in made.log[2].after_fit.items():
        assert torch.equal(fitted.params[HEAD], made.method.receive(made.client(i, 3)).params[HEAD])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"local_beta": True}, {"beta": 1}),
        ({"single_beta": True, "beta": 0.3}, {"beta": [0.3, 0.3]}),
        ({"beta": 0.3}, {"beta": [0.3, 0.3]}),
    ],
)
def test_the_same_weights_in_other_words(one, other):
    ours, theirs = run(2, **one), run(2, **other)
    for a, b in zip(ours.log, theirs.log, strict=True):
        assert all(equal(a.after_agg[i], b.after_agg[i]) and equal(a.after_fit[i], b.after_fit[i]) for i in range(4))


def test_one_client_has_the_global_statistics_to_itself():
    made = run(2, sizes=[17])
    upload = made.log[1].uploads[0]
    assert torch.equal(made.server.means, upload.means)
    assert torch.equal(made.server.covariance, upload.covariance)


def test_the_first_means_are_drawn_once_for_all_from_the_runs_seed():
    one, two = (Simulation("pfedfda", blobs(SIZES), seed=seed).server for seed in (0, 5))
    expected = torch.rand(4, 5, generator=torch.Generator().manual_seed(5)).flatten()
    assert torch.equal(two.means, expected)
    assert not torch.equal(one.means, two.means)
    assert torch.equal(unpacked_triangle(one.covariance, 5), torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize("norm", [False, True])
def test_the_head_is_computed_and_frozen_while_the_body_trains(norm):
    made = run(1, norm, train={"weight_decay": 0.1, "momentum": 0.9})
    client = Simulation("pfedfda", blobs(SIZES), module=Mlp(norm)).client(1, 0)
    client = replace(made.client(1, 1), message=client.message)
    received, common = made.method.receive(client), made.method.common(client)
    slopes, offsets = head_of(common, label_prior(client.train.labels, 4, 1e-4))
    assert torch.equal(received.params[HEAD], torch.cat([slopes.flatten(), offsets]).float())
    trained, features, labels = made.method.train_body(client, received)
    assert torch.equal(trained.params[HEAD], received.params[HEAD])
    assert not torch.equal(trained.params[:-24], received.params[:-24])
    assert torch.equal(trained.params[:-24], made.log[0].after_fit[1].params[:-24])
    assert len(features) == len(labels) == 2 * 17 - (2 if norm else 0)  # a last batch of one is dropped under BatchNorm


@pytest.mark.parametrize("amount", [{"epochs": 2}, {"steps": 5}])
def test_features_are_those_before_each_step_in_the_order_drawn(amount):
    made = Simulation("pfedfda", blobs(SIZES), train={**amount, "momentum": 0, "weight_decay": 0})
    learner, client, seen = made.learner, made.client(1, 1), []
    received = made.method.receive(client)
    head, weights = made.context.layout.mask("head"), received
    _, features, labels = made.method.train_body(client, received)
    client.train = Spy(client.train, seen)
    client.fit(received, client.train, move=Move(~head))
    expected = []
    for index in list(seen):
        x, y = client.train.data.batch(index)
        expected.append(learner.features(weights, replace(client.train.data, x=x, labels=y)))
        step = learner.gradient(weights, (x, y))[1] * 0.1
        weights = weights.replace(params=torch.where(head, weights.params, weights.params - step))
    assert torch.equal(labels, client.train.data.labels[torch.cat(seen)])
    assert torch.allclose(features, torch.cat(expected), atol=1e-6)
    assert not features.requires_grad


class Spy:
    """Data that note which images a fit asks for."""

    def __init__(self, data, seen):
        self.data, self.seen, self.key = data, seen, data.key

    def __len__(self):
        return len(self.data)

    def batch(self, index):
        self.seen.append(index)
        return self.data.batch(index)


def test_a_final_pass_sees_every_image_once_after_training():
    made = Simulation("pfedfda", blobs(SIZES), module=Mlp(norm=True), features_from="final_pass")
    client = made.client(1, 1)
    received = made.method.receive(client)
    trained, features, labels = made.method.train_body(client, received)
    assert torch.equal(features, made.learner.features(trained, client.train))
    assert torch.equal(labels, client.train.labels)
    idle = Simulation("pfedfda", blobs(SIZES), train={"epochs": 0})
    trained, features, _ = idle.method.train_body(idle.client(1, 1), idle.initial)
    assert equal(trained, idle.initial)
    assert torch.equal(features, idle.learner.features(trained, idle.client(1, 1).train))


def test_what_is_uploaded_and_averaged_are_adapted_statistics():
    made = run(2, beta=[0.25, 0.5], features_from="final_pass")
    start, seen = made.log[0], made.log[1]
    before = [
        sum(SIZES[i] * start.uploads[i].tensors[n].double() for i in range(4)) / 68 for n in ("means", "covariance")
    ]
    common = Gaussians(before[0].float().double().view(4, 5), unpacked_triangle(before[1].float().double(), 5))
    for i, upload in seen.uploads.items():
        data = made.client(i, 2).train
        features = made.learner.features(seen.after_fit[i], data).double()
        local = statistics_of(features, data.labels, common.means, 2, 1e-4, 1)
        adapted = mixed_gaussians([0.25, 0.5], local, common)
        assert torch.allclose(upload.means.double(), adapted.means.flatten(), atol=1e-6)
        assert torch.allclose(upload.covariance.double(), packed_triangle(adapted.covariance), atol=1e-6)
        head = head_of(adapted, label_prior(data.labels, 4, 1e-4))
        assert torch.allclose(
            seen.after_fit[i].params[HEAD].double(), torch.cat([h.flatten() for h in head]), atol=1e-5
        )
        assert seen.traces[i, "beta_means"] == 0.25
        assert seen.traces[i, "beta_covariance"] == 0.5
    means = sum(n * seen.uploads[i].means.double() for i, n in enumerate(SIZES)) / 68
    assert torch.allclose(made.server.means.double(), means, atol=1e-7)


@pytest.mark.parametrize("norm", [False, True])
def test_after_agg_adapts_to_the_new_body_and_statistics(norm):
    made = run(3, norm, draw=lambda t: [0, 1, 3] if t == 1 else [0, 1])
    for i, model in made.log[2].after_agg.items():
        client = made.client(i, 3)
        assert torch.equal(model.params[:-24], made.server.params)
        assert torch.equal(model.buffers, made.server.buffers)
        features = made.learner.features(model, client.train)
        adapted, _ = made.method.adapted(client, features, client.train.labels)
        head = head_of(adapted, label_prior(client.train.labels, 4, 1e-4))
        assert torch.allclose(model.params[HEAD].double(), torch.cat([h.flatten() for h in head]), atol=1e-4)
    assert not torch.equal(made.log[2].after_agg[0].params[HEAD], made.log[2].after_fit[0].params[HEAD])


def test_nothing_depends_on_the_number_of_threads():
    draw, found = torch.Generator().manual_seed(0), []
    wide = Mlp()
    wide.body, wide.head = nn.Sequential(nn.Linear(6, 512), nn.ReLU()), nn.Linear(512, 4)
    z, y = torch.randn(90, 512, generator=draw), torch.arange(90) % 4
    z[range(90), y] += 2
    made = Simulation("pfedfda", blobs(SIZES), module=wide)
    client = made.client(0, 1)
    client.message = Message(
        means=torch.rand(4 * 512, generator=draw), covariance=packed_triangle(torch.eye(512) + 0.1)
    )
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            adapted, betas = made.method.adapted(client, z, y)
            heads = [discriminant(both, 1e-4) for both in (made.method.common(client), adapted)]
            found.append([*heads[0], *adapted, *heads[1], torch.tensor(betas)])
    assert 0 < found[0][-1][1] < 1
    assert all(torch.equal(*both) for both in zip(*found, strict=True))


def test_only_the_last_weights_are_kept():
    made = run(2, draw=lambda t: [0, 1])
    assert set(made.states) == {0, 1}
    for i, state in made.states.items():
        seen = made.log[1].traces
        assert state == PFedFDA.State(betas=(seen[i, "beta_means"], seen[i, "beta_covariance"]))


@pytest.mark.parametrize(
    "options",
    [
        {"single_beta": True},
        {"local_beta": True},
        {"beta": 0.4},
        {"num_folds": 3},
        {"eps": 0.01},
        {"cov_ridge": 0.1},
        {"cov_offset": 0.1},
        {"features_from": "final_pass"},
        {"beta_max_iter": 1},
        {"beta_gtol": 10.0},
        {"weighting": "uniform"},
        {"buffers": "private"},
    ],
)
def test_every_option_changes_the_result(options):
    ours, plain = (run(2, norm=True, **more).log[1].after_agg[3] for more in (options, {}))
    assert not torch.equal(ours.params, plain.params)


@pytest.mark.parametrize("norm", [False, True])
def test_bytes(norm):
    made = run(2, norm)
    stats, body = made.context.layout.buffer_size, made.context.layout.size - 24
    for seen in made.log:
        assert set(seen.down.values()) == {4 * (body + stats + 4 * 5 + 15)}
        assert set(seen.up.values()) == {4 * (body + stats + 4 * 5 + 15) + 4}


def test_odd_clients_train():
    lonely, single = blobs([1, 9])
    single.labels[:] = 2
    made = Simulation("pfedfda", [lonely, single], module=Mlp(norm=True)).run(2)
    assert all(seen.after_agg[i].is_finite() and seen.after_fit[i].is_finite() for seen in made.log for i in (0, 1))


def test_what_contradicts_itself_is_refused():
    with pytest.raises(ConfigError, match="local_beta = true"):
        run(1, local_beta=True, beta=0.5)
    with pytest.raises(ConfigError, match="single_beta = true"):
        run(1, single_beta=True, beta=[0.5, 0.5])
    for beta in (1.5, [0.5], [0.5, 0.5, 0.5], [0.5, -0.1]):
        with pytest.raises(ValidationError):
            PFedFDA.Options(beta=beta)
    assert PFedFDA.Options(beta="none").beta is None


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("pfedfda", targets(1.0), module=Quadratic())
    plain = Mlp()
    plain.head = nn.Linear(5, 4, bias=False)
    with pytest.raises(ConfigError, match="needs a bias"):
        Simulation("pfedfda", blobs(SIZES), module=plain)


MUTANTS = [
    (
        "solving writes over what others start from",
        "inverse(lambda: shrunk(gaussians, eps).covariance)",
        "inverse(lambda: gaussians.covariance)",
        "methods/parts/gaussians.py",
    ),
    ("heads depend on threads", "@one_thread\ndef discriminant", "def discriminant", "methods/parts/gaussians.py"),
    (
        "adaptation depends on threads",
        "@one_thread\ndef interpolated",
        "def interpolated",
        "methods/parts/interpolation.py",
    ),
    ("the prior is forgotten", "offsets + self.prior(client).log()", "offsets"),
    ("the prior is forgotten in validation", "means) + log_prior", "means)", "methods/parts/interpolation.py"),
    ("no half in the offset", "-0.5 * (means", "-1.0 * (means", "methods/parts/gaussians.py"),
    (
        "no shrinkage",
        "matrix.diagonal().add_(eps * gaussians.covariance.trace() / len(matrix))",
        "pass",
        "methods/parts/gaussians.py",
    ),
    ("one row is enough for a mean", "rows > least", "rows >= 1", "methods/parts/gaussians.py"),
    (
        "the squares of one fold are forgotten",
        "if part.counts.any()",
        "if part is moments[0]",
        "methods/parts/gaussians.py",
    ),
    ("the covariance is divided by n", "max(int(rows.sum()) - 1, 1)", "int(rows.sum())", "methods/parts/gaussians.py"),
    ("the offset is not scaled", "(offset * freedom) ** 0.5", "offset**0.5", "methods/parts/gaussians.py"),
    (
        "the wrong triangle is packed",
        'dtrttp(symmetric.numpy().T, uplo="L")',
        'dtrttp(symmetric.numpy(), uplo="L")',
        "methods/parts/gaussians.py",
    ),
    (
        "both triangles are read",
        "dsymm(1.0, to.covariance.numpy().T, slopes.T, lower=True).T",
        "slopes @ to.covariance.numpy()",
        "methods/parts/interpolation.py",
    ),
    (
        "a matrix that is not definite is solved half done",
        "    matrix = make().numpy().T\n",
        "    matrix = factor\n",
        "methods/parts/gaussians.py",
    ),
    ("the ridge is left out", "covariance.diagonal().add_(ridge)", "pass", "methods/parts/gaussians.py"),
    (
        "local and global are exchanged",
        "torch.lerp(other, own, b)",
        "torch.lerp(own, other, b)",
        "methods/parts/gaussians.py",
    ),
    (
        "statistics are local ones",
        "return mixed_gaussians(betas, local(moments), common), betas",
        "return local(moments), betas",
        "methods/parts/interpolation.py",
    ),
    ("the head moves in training", "move=body, ", ""),
    (
        "folds are dealt over all classes",
        "member.cumsum(0).gather(1, labels[:, None])[:, 0] - 1",
        "torch.arange(len(labels))",
        "methods/parts/interpolation.py",
    ),
    (
        "rare classes are validated too",
        "place = torch.where(enough[labels], place % folds, folds)",
        "place %= folds",
        "methods/parts/interpolation.py",
    ),
    (
        "statistics to validate have rare classes too",
        "held_out(parts[:-1], moments[:-1],",
        "held_out(parts[:-1], moments,",
        "methods/parts/interpolation.py",
    ),
    (
        "rare classes are forgotten",
        "mixed_gaussians(betas, local(moments), common)",
        "mixed(betas, local(moments[:-1]), common)",
        "methods/parts/interpolation.py",
    ),
    (
        "parts keep their own centres",
        "away = torch.cat([away, ",
        "away = torch.cat([0 * away, ",
        "methods/parts/gaussians.py",
    ),
    (
        "the fold itself is the rest",
        "[*moments[:number], *moments[number + 1 :]]",
        "[moments[number]]",
        "methods/parts/interpolation.py",
    ),
    ("the last fold alone", "total -= (shares", "total = -(shares", "methods/parts/interpolation.py"),
    (
        "after_agg with the training head",
        "return self.with_head_of(adapted, client, model)",
        "return model",
    ),
    (
        "statistics are not replaced",
        "server.covariance = weighted_mean([u.covariance for u in uploads], weights)",
        "pass",
    ),
    ("the last weights are not kept", "client.state.betas = betas", "pass"),
    ("the last weights are forgotten", "*limits) or last", "*limits) or (0.5, 0.5)", "methods/parts/interpolation.py"),
    ("the head is kept", "client.state.params = None", "pass"),
    (
        "features of the last batch only",
        "s.rows[: len(features)]",
        "torch.arange(len(features))",
        "methods/parts/recorded_features.py",
    ),
]
