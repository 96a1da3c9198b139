"""pfedfda: what the specification promises."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from threadpoolctl import threadpool_limits
from torch import nn

from fedbench.aggregation.cross_validation import validation
from fedbench.aggregation.gaussians import (
    Gaussians,
    discriminant,
    label_prior,
    mixed_gaussians,
    packed_triangle,
    unpacked_triangle,
)
from fedbench.engine.fit import Move
from fedbench.errors import ConfigError
from fedbench.methods.messages import Message
from fedbench.methods.pfedfda import PFedFDA, adapt_statistics
from tests.aggregation.features import f64, head_of, problem, statistics_of
from tests.methods.simulator import Mlp, Quadratic, Simulation, blobs, equal, targets

SIZES = [9, 17, 12, 30]
HEAD = slice(-24, None)  # of the simulator's model: 4 classes of 5 features


def run(rounds=2, norm=False, sizes=SIZES, **options) -> Simulation:
    draw, train = options.pop("draw", None), options.pop("train", None)
    return Simulation("pfedfda", blobs(sizes), module=Mlp(norm), draw=draw, train=train, **options).run(rounds)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_solution_is_no_worse_than_a_grid(single, seed):
    asked, common, _, z, y = problem(seed)
    options = PFedFDA.Options(beta_max_iter=100, beta_gtol=1e-9, single_beta=single)
    _, betas = adapt_statistics((z, y), common, asked["prior"], (0.5, 0.5), options)
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
    one, two = (
        adapt_statistics(rows, common, asked["prior"], (0.5, 0.5), PFedFDA.Options()) for rows in ((z, y), more)
    )
    assert one[1] == two[1] != (0.5, 0.5)
    assert not torch.equal(one[0].covariance, two[0].covariance)


def test_rare_classes_alone_leave_the_global_statistics():
    made = Simulation("pfedfda", blobs(SIZES))
    client, z = made.client(0, 1), torch.rand(4, 5, dtype=torch.float64)
    adapted, betas = made.method.adapted_statistics(client, z, torch.tensor([0, 1, 2, 3]))
    assert betas == (0, 0)
    assert all(torch.equal(*both) for both in zip(adapted, made.method.global_statistics(client), strict=True))


def test_a_solver_that_fails_leaves_the_last_weights():
    made = Simulation("pfedfda", blobs(SIZES))
    client, z = made.client(0, 1), torch.full((12, 5), torch.inf, dtype=torch.float64)
    labels = torch.arange(12) % 2
    assert made.method.adapted_statistics(client, z, labels)[1] == (0.5, 0.5)
    client.state.betas = (0.1, 0.9)
    assert made.method.adapted_statistics(client, z, labels)[1] == (0.1, 0.9)


def test_with_weights_of_zero_the_global_statistics_stay():
    made = run(3, beta=0)
    start = Simulation("pfedfda", blobs(SIZES), beta=0).server
    assert torch.allclose(made.server.means, start.means, rtol=0, atol=1e-12)
    assert torch.allclose(made.server.covariance, start.covariance, rtol=0, atol=1e-12)
    for i, fitted in made.log[2].after_fit.items():
        assert torch.equal(fitted.params[HEAD], made.method.receive(made.client(i, 3)).params[HEAD])


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
    received, common = made.method.receive(client), made.method.global_statistics(client)
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


def test_after_agg_adapts_to_the_new_body_and_statistics():
    made = run(3, True, draw=lambda t: [0, 1, 3] if t == 1 else [0, 1])
    for i, model in made.log[2].after_agg.items():
        client = made.client(i, 3)
        assert torch.equal(model.params[:-24], made.server.params)
        assert torch.equal(model.buffers, made.server.buffers)
        features = made.learner.features(model, client.train)
        adapted, _ = made.method.adapted_statistics(client, features, client.train.labels)
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
            adapted, betas = made.method.adapted_statistics(client, z, y)
            heads = [discriminant(both, 1e-4) for both in (made.method.global_statistics(client), adapted)]
            found.append([*heads[0], *adapted, *heads[1], torch.tensor(betas)])
    assert 0 < found[0][-1][1] < 1
    assert all(torch.equal(*both) for both in zip(*found, strict=True))


def test_only_the_last_weights_are_kept():
    made = run(2, draw=lambda t: [0, 1])
    assert set(made.states) == {0, 1}
    for i, state in made.states.items():
        seen = made.log[1].traces
        assert state == PFedFDA.State(betas=(seen[i, "beta_means"], seen[i, "beta_covariance"]))


def test_bytes():
    made = run(2, norm=True)
    stats, body = made.context.layout.buffer_size, made.context.layout.size - 24
    for seen in made.log:
        assert set(seen.down.values()) == {4 * (body + stats + 4 * 5 + 15)}
        assert set(seen.up.values()) == {4 * (body + stats + 4 * 5 + 15) + 4}


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
