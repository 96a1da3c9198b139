"""pfedhn: what the specification promises."""

import pytest
import torch

from fedbench.methods.pfedhn import clip_generated, clip_gradients, generate, pulled_back, step
from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_near, blobs, close, targets

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
LOCAL = {"epochs": 2, "steps": None, "batch_size": 8, "lr": 0.1, "precision": "64-true"}
PLAIN = {"hyper_init": "constant", "server_lr": 1.0, "server_momentum": 0.0, "server_weight_decay": 0.0, "clip": None}
ONE = [exact([[0.5]]), exact([0.1]), exact([[1], [-1]]), exact([0, 0.5])]


def test_a_network_without_hidden_layers_on_paper():
    v, moves = exact([[2]]), exact([[0.1, -0.2]])
    assert close(generate(v[0], ONE), [1.1, -0.6])
    slopes = pulled_back(v, ONE, moves, exact([1]))
    assert close(torch.cat([slope.flatten() for slope in slopes]), [0.6, 0.3, 0.11, -0.22, 0.1, -0.2, 0.15])
    zero = [torch.zeros_like(part) for part in (*ONE, v)]
    *phi, v = (step(*three, 0.1, 0.0, 0.0)[0] for three in zip([*ONE, v], slopes, zero, strict=True))
    assert close(v, [1.985])
    assert close(generate(v[0], phi), [0.923023, -0.402645])


def test_a_hidden_layer_on_paper():
    phi = [exact([[0.5], [-0.5]]), exact([0.1, 0.2]), exact([[1, 2], [0.5, -1]]), exact([0, 0.1])]
    phi += [exact([[1, 0], [-1, 1]]), exact([0, 0.5])]
    assert close(generate(exact([2]), phi), [1.1, 0.05])
    slopes = pulled_back(exact([[2]]), phi, exact([[0.1, 0.45]]), exact([1]))
    assert close(slopes[-1], [-0.0625])
    assert close(slopes[0], [-0.25, 0])
    assert close(slopes[2], [-0.385, 0, 0.495, 0])


def test_an_embedding_gets_its_full_gradient_and_the_network_the_weighted_one():
    v, moves = exact([[2], [1]]), exact([[0.1, -0.2], [0.3, 0.1]])
    both = pulled_back(v, ONE, moves, exact([0.25, 0.75]))
    alone = [pulled_back(v[i : i + 1], ONE, moves[i : i + 1], exact([1])) for i in (0, 1)]
    assert torch.allclose(both[-1], torch.cat([slopes[-1] for slopes in alone]))
    assert torch.allclose(both[0], 0.25 * alone[0][0] + 0.75 * alone[1][0])


def test_gradients_are_clipped_exactly_and_those_of_private_entries_not():
    g = exact([3, 4, 100])
    clip_generated(g, g, type("s", (), {"generated": exact([1, 1, 0]), "clip": exact(2.5)}))
    assert close(g, [1.5, 2, 100], digits=12)
    clip_generated(g, g, type("s", (), {"generated": exact([1, 1, 0]), "clip": exact(2.5)}))
    assert close(g, [1.5, 2, 100], digits=12)
    assert close(torch.cat(clip_gradients([exact([3]), exact([4])], 2.5)), [1.5, 2])
    assert close(torch.cat(clip_gradients([exact([3]), exact([4])], None)), [3, 4])
    value, velocity = step(exact([2]), exact([1]), exact([10]), 0.1, 0.5, 0.25)
    assert close(torch.cat([value, velocity]), [2 - 0.1 * 6.5, 6.5])


@pytest.mark.parametrize(("variant", "plain"), [("full", "fedavg"), ("pc", "fedper")])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_a_constant_network_averages(variant, plain, weighting):
    more = {"draw": SOME, "weighting": weighting, "train": LOCAL | {"momentum": 0.9, "weight_decay": 5e-5}}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    assert_near(make("pfedhn", variant=variant, **PLAIN), make(plain, buffers="private"))


def test_sizes_and_first_models():
    run = Simulation("pfedhn", blobs([9] * 4), train=LOCAL)
    assert (
        sum(part.numel() for part in (*run.server.phi, run.server.embeddings)) == 2 * 4 + 3 * 100 + 3 * 10100 + 101 * 59
    )
    stream = torch.Generator().manual_seed(0)
    assert torch.equal(run.server.embeddings, torch.randn(4, 2, generator=stream, dtype=torch.float64))
    weight = (2 * torch.rand(100, 2, generator=stream, dtype=torch.float64) - 1) / 2**0.5
    assert torch.equal(run.server.phi[0], weight)
    near = Simulation("pfedhn", blobs([9] * 4), train=LOCAL, hyper_init="w0")
    assert torch.equal(near.server.phi[-1], near.initial.params)
    assert torch.equal(near.server.phi[0], run.server.phi[0])


def test_a_client_gets_what_its_embedding_says_with_its_own_head_and_statistics():
    run = Simulation("pfedhn", blobs([9, 17, 12]), module=Mlp(norm=True), train=LOCAL, variant="pc", draw=SOME).run(2)
    shared = run.method.shared_params
    for i in range(3):
        model = run.log[1].after_agg[i]
        assert torch.allclose(shared.take(model.params), generate(run.server.embeddings[i], run.server.phi))
    head = run.context.layout.mask("head")
    assert torch.equal(run.log[1].after_agg[0].params[head], run.log[1].after_fit[0].params[head])
    assert torch.equal(run.log[1].after_agg[0].buffers, run.log[1].after_fit[0].buffers)
    assert torch.equal(run.log[1].after_agg[2].params[head], run.log[0].after_fit[2].params[head])
    assert all(len(upload.params) == int((~head).sum()) for upload in run.log[1].uploads.values())
    assert set(run.log[1].up.values()) == set(run.log[1].down.values()) == {8 * 45}


def test_absent_embeddings_stay_and_newcomers_have_the_first_network():
    run = Simulation("pfedhn", blobs([9, 17]), train=LOCAL, draw=lambda t: [0]).run(2)
    first = run.method.initial_draw
    assert torch.equal(run.server.embeddings[1], first[0][1])
    assert not torch.equal(run.server.embeddings[0], first[0][0])
    assert torch.equal(run.method.idle_model(run.client(1, 2)).params, generate(first[0][1], first[1]))
    assert not torch.equal(run.personal(1).params, generate(first[0][1], first[1]))
    assert run.server.trained == [0]


def test_momentum_of_the_server_is_kept_and_rates_decay():
    train = LOCAL | {"lr_decay": 0.5}
    own = {"clip": None, "server_weight_decay": 0.0, "server_lr": 0.1, "embed_lr": 0.2, "server_momentum": 0.5}
    run = Simulation("pfedhn", blobs([9]), train=train, hidden_dim=4, n_hidden=1, **own)
    velocity, phi, v = None, run.server.phi, run.server.embeddings
    for t in (0, 1):
        run.run(1, evaluate=False)
        moves = run.log[t].uploads[0].params[None]
        slopes = pulled_back(v, phi, moves, exact([1]))
        velocity = slopes if velocity is None else [0.5 * a + b for a, b in zip(velocity, slopes, strict=True)]
        phi = [part - 0.1 * 0.5**t * own for part, own in zip(phi, velocity, strict=False)]
        v = v - 0.2 * 0.5**t * velocity[-1]
    assert torch.allclose(run.server.embeddings, v)
    assert all(torch.allclose(a, b) for a, b in zip(run.server.phi, phi, strict=True))


def test_the_sum_is_the_mean_times_the_participants():
    make = lambda **o: Simulation("pfedhn", blobs([9, 17]), train=LOCAL, **(PLAIN | o)).run(1).server  # noqa: E731
    mean, total = make(server_lr=0.5, embed_lr=0.5), make(server_lr=0.25, embed_lr=0.5, phi_update="sum")
    assert all(torch.allclose(a, b) for a, b in zip(mean.phi, total.phi, strict=True))
    still = Simulation("pfedhn", blobs([9, 17]), train=LOCAL, server_lr=0.0).run(2)
    first, second = (seen.after_agg for seen in still.log)
    assert all(torch.equal(first[i].params, second[i].params) for i in first)


def test_a_huge_network_is_said():
    method = Simulation("pfedhn", blobs([9])).method
    assert list(method.check()) == []
    method.options = method.options.model_copy(update={"hidden_dim": 40000})
    assert "numbers, twice with momentum" in next(iter(method.check()))


def test_the_size_of_the_network_is_said(monkeypatch):
    monkeypatch.setattr("fedbench.methods.pfedhn.MANY", 0)
    made = Simulation("pfedhn", blobs([9] * 8), embed_dim=3)
    size = sum(part.numel() for part in made.server.phi) + made.server.embeddings.numel()
    assert f"has {size} numbers" in next(iter(made.method.check()))


def test_a_newcomer_fits_its_embedding_under_the_network_as_it_is():
    """A quadratic loss with target b: the model moves by lr (theta - b) in one step."""
    train = {"epochs": 1, "steps": None, "lr": 0.1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}
    rates = {"embed_lr": 0.3, "server_momentum": 0.0, "server_weight_decay": 0.0, "clip": None}
    run = Simulation("pfedhn", targets((1.0, 2.0)), module=Quadratic((0.0, 0.0)), train=train, **rates).run(1)
    run.server.round = 2  # newcomers get the messages of the round to come
    message = run.method.welcome(run.server, 1)
    v, phi, b = message.embedding, run.server.phi, exact([3, -1])
    assert torch.equal(run.joined(targets((3.0, -1.0))[0], 0).params, generate(v, phi))
    for _ in range(2):
        moves = 0.1 * (generate(v, phi) - b)
        v = v - 0.3 * pulled_back(v[None], phi, moves[None], exact([1]))[-1][0]
    assert torch.allclose(run.joined(targets((3.0, -1.0))[0], 2).params, generate(v, phi), atol=1e-12)
    assert torch.equal(run.server.phi[0], phi[0])
