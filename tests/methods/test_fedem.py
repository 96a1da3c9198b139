"""fedem: what the specification promises."""

import pytest
import torch

from fedbench.methods.client import Predictor
from fedbench.methods.fedem import losses_of, mixed_scores, responsibilities
from tests.methods.simulator import Mlp, Simulation, assert_near, blobs, close

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
PI = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
LOSSES = torch.tensor([[0.2, 1, 2], [1.5, 0.5, 0.1]], dtype=torch.float64)
EXACT = {"precision": "64-true"}


def fitted(mixture, losses) -> float:
    return float(-(mixture.log() - losses).logsumexp(1).mean())


def test_the_steps_on_paper():
    q = responsibilities(PI, LOSSES)
    assert close(q, [0.748662, 0.201837, 0.049501, 0.235125, 0.383482, 0.381392])
    assert close(q.mean(0), [0.491894, 0.292660, 0.215447])
    assert close(torch.tensor(fitted(PI, LOSSES)), [0.674595])
    assert fitted(q.mean(0), LOSSES) < fitted(PI, LOSSES)
    slopes = torch.tensor([[1.0, 3, 0], [-2, 0.5, 1]], dtype=torch.float64)
    assert close((q * slopes).mean(0), [0.139205, 0.398626, 0.190696])
    assert responsibilities(torch.tensor([1.0, 0.0]), torch.tensor([[900.0, 1.0]])).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_one_component_is_fedavg(weighting):
    more = {"draw": SOME, "weighting": weighting, "train": EXACT}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    run, plain = make("fedem", components=1), make("fedavg")
    assert_near(run, plain)
    assert run.states[0].mixture.tolist() == [1.0]
    common = run.method.global_model(run.server, run.initial)
    assert torch.allclose(common.params, plain.server.params, rtol=0, atol=1e-12)


def test_equal_components_stay_equal_and_train_at_a_third_of_the_rate():
    train = EXACT | {"momentum": 0, "weight_decay": 0}
    run = Simulation("fedem", blobs([9, 17]), train=train, init="jitter", init_scale=0.0).run(3)
    plain = Simulation("fedavg", blobs([9, 17]), train=train | {"lr": 0.1 / 3}).run(3)
    for model in (run.server, *run.server.others):
        assert torch.allclose(model.params, plain.server.params, rtol=0, atol=1e-12)
    assert close(run.states[0].mixture, [1 / 3] * 3, digits=12)


def test_a_prediction_mixes_probabilities():
    run = Simulation("fedem", blobs([9, 17]), module=Mlp(norm=True), train=EXACT).run(2)
    mixture, models = run.states[0].mixture, run.method.receive(run.client(0, 2)).all
    assert isinstance(run.log[1].after_fit[0], Predictor)
    found = run.log[1].after_agg[0].scores(run.data[0]).exp()
    expected = sum(p * run.learner.logits(m, run.data[0]).softmax(1) for p, m in zip(mixture, models, strict=True))
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(run.log[1].after_fit[0].scores(run.data[0]).exp().sum(1), torch.ones(9, dtype=torch.float64))


def test_the_mixture_of_two_probabilities_on_paper():
    class Looks:
        """A client whose model is its class scores."""

        class learner:
            logits = staticmethod(lambda model, data: model)

    rows = [
        torch.tensor([row], dtype=torch.float64).log() for row in ((0.7, 0.2, 0.1), (0.1, 0.8, 0.1), (0.3, 0.3, 0.4))
    ]
    pi = torch.tensor([0.491894, 0.292660, 0.215447], dtype=torch.float64)
    found = mixed_scores(Looks, rows, pi, None)
    assert close(found.exp(), [0.438225, 0.397141, 0.164634], digits=5)
    assert close(-found[0, 1], [0.923465], digits=5)


def test_weights_are_those_of_the_image_and_divided_by_the_batch():
    """One full batch: the component's gradient is the mean of q times the image's own gradient."""
    train = EXACT | {"momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1}
    run = Simulation("fedem", blobs([9]), train=train, components=2, init="jitter", init_scale=0.3)
    starts = run.method.start_models(run.initial)
    client = run.client(0, 0)
    q = responsibilities(torch.full((2,), 0.5, dtype=torch.float64), losses_of(client, starts))
    run.run(1)
    for j, model in enumerate(starts):
        total = torch.zeros_like(model.params)
        for i in range(9):
            _, slope = run.learner.gradient(model, (run.data[0].x[i : i + 1], run.data[0].labels[i : i + 1]))
            total += q[i, j] * slope / 9
        found = [run.server.params, run.server.others[0].params][j]
        assert torch.allclose(found, model.params - 0.1 * total, rtol=0, atol=1e-12)
    assert torch.allclose(run.states[0].mixture, q.mean(0))


def test_the_mixture_is_refreshed_for_newcomers_or_where_it_is_asked_for():
    make = lambda **o: Simulation("fedem", blobs([9, 17]), train=EXACT, draw=lambda t: [0], **o).run(2)  # noqa: E731
    run, refreshed = make(), make(refresh=3)
    assert 1 not in run.states
    client = run.client(1, 2)
    even = torch.full((3,), 1 / 3, dtype=torch.float64)
    losses = losses_of(client, run.method.receive(client).all)
    once = responsibilities(even, losses).mean(0)
    probabilities = [run.learner.logits(m, run.data[1]).softmax(1) for m in run.method.receive(client).all]
    expected = sum(p * own for p, own in zip(once, probabilities, strict=True))
    assert torch.allclose(run.log[1].after_agg[1].scores(run.data[1]).exp(), expected, atol=1e-12)
    assert torch.equal(run.states[0].mixture, refreshed.states[0].mixture)
    first, more = (r.log[1].after_agg[0].scores(run.data[0]) for r in (run, refreshed))
    assert not torch.allclose(first, more)


def test_components_keep_optimisers_of_their_own():
    train = EXACT | {"keep_optimizer": True, "momentum": 0.5}
    run = Simulation("fedem", blobs([9, 17]), train=train, components=2).run(2)
    assert sorted(run.states[0].optimizers) == ["component 0", "component 1"]
    one, other = (run.states[0].optimizers[f"component {j}"]["optimizer"]["momentum_buffer"] for j in (0, 1))
    assert not torch.equal(one, other)


def test_bytes_and_steps_are_those_of_all_components():
    run = Simulation("fedem", blobs([9, 17]), module=Mlp(norm=True)).run(1)
    assert set(run.log[0].up.values()) == set(run.log[0].down.values()) == {3 * 4 * 79}
    assert run.log[0].steps == {0: 3 * 2, 1: 3 * 4}  # batches of one image are dropped
    assert run.method.global_model(run.server, run.initial) is None


def test_training_lowers_the_loss_of_the_mixture():
    run = Simulation("fedem", blobs([30, 30]), train=EXACT, components=2, init="jitter", init_scale=0.3)
    found = []
    for _ in range(3):
        client = run.client(0, 0)
        found.append(fitted(run.method.mixture(client), losses_of(client, run.method.receive(client).all)))
        run.round(evaluate=False)
    assert found == sorted(found, reverse=True)


def test_a_newcomer_finds_its_mixture_by_as_many_passes_as_epochs():
    run, data = Simulation("fedem", blobs([9, 17]), train=EXACT).run(1), blobs([12], seed=5)[0]
    joined = {epochs: run.joined(data, epochs) for epochs in (0, 2)}
    client = run.client(2, 1)
    models, mixture = run.method.receive(client).all, torch.full((3,), 1 / 3, dtype=torch.float64)
    assert torch.equal(joined[0].scores(client.train), mixed_scores(client, models, mixture, client.train))
    for _ in range(2):
        mixture = responsibilities(mixture, losses_of(client, models)).mean(0)
    assert torch.equal(joined[2].scores(client.train), mixed_scores(client, models, mixture, client.train))
