"""knn-per: what the specification promises."""

import pytest
import torch

from fedbench.methods.client import Predictor
from fedbench.methods.knn_per import mixed, neighbours
from tests.methods.simulator import Mlp, Simulation, accuracy_of, assert_same, blobs, close

KEYS = torch.tensor([[0.0, 0], [1, 0], [0, 2], [3, 1]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 1, 2])
QUERY = torch.ones(1, 2, dtype=torch.float64)
SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731


@pytest.mark.parametrize(
    ("k", "scale", "square", "shares"),
    [
        (1, 1.0, True, [0, 1, 0]),
        (2, 1.0, True, [0.377541, 0.622459, 0]),
        (2, 0.5, True, [0.268941, 0.731059, 0]),
        (3, 1.0, True, [0.274069, 0.725931, 0]),
        (10, 1.0, True, [0.248967, 0.659444, 0.091590]),
        (3, 1.0, False, [0.309587, 0.690413, 0]),
        (10, 1e12, True, [0.25, 0.5, 0.25]),
    ],
)
def test_the_neighbours_on_paper(k, scale, square, shares):
    found = neighbours(QUERY, KEYS, LABELS, 3, k, scale, square)
    assert close(found, shares)
    shifted = neighbours(QUERY + 7, KEYS + 7, LABELS, 3, k, scale, square)
    assert torch.allclose(shifted, found)


def test_the_mixture_on_paper():
    votes, logits = neighbours(QUERY, KEYS, LABELS, 3, 3, 1.0, True), torch.tensor([[0.2, 0.3, 0.5]]).log()
    found = mixed(votes, logits, 0.25, "probabilities")
    assert close(found.exp(), [0.218517, 0.406483, 0.375])
    assert close(-found[0, 0], [1.520891])
    assert close(mixed(votes, logits, 0.8, "probabilities").exp(), [0.259255, 0.640745, 0.1])
    assert close(mixed(votes, logits.exp(), 0.8, "logits"), [0.259255, 0.640745, 0.1])
    certain = mixed(torch.tensor([[1.0, 0, 0]]), logits, 1.0, "probabilities")
    assert float(certain[0, 1].exp()) == pytest.approx(1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"k": 3, "scale": 0.1, "mixing": "logits"}, {"capacity": 0.5, "distance": "euclidean"}]
)
def test_training_is_fedavgs(options):
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, **o).run(3)  # noqa: E731
    run, plain = make("knn-per", **options), make("fedavg")
    for one, other in zip(run.log, plain.log, strict=True):
        for i, upload in other.uploads.items():
            assert all(torch.equal(one.uploads[i].tensors[n], upload.tensors[n]) for n in upload.tensors)
        assert (one.up, one.down) == (other.up, other.down)
    assert torch.equal(run.method.global_model(run.server, run.initial).params, plain.server.params)
    assert isinstance(run.log[-1].after_agg[0], Predictor)


@pytest.mark.parametrize("options", [{"lam": 0}, {"capacity": 0}])
def test_without_a_memory_predictions_are_fedavgs(options):
    make = lambda m, **o: Simulation(m, blobs([9, 17]), module=Mlp(norm=True), **o).run(2)  # noqa: E731
    assert_same(make("knn-per", **options), make("fedavg"))


def test_the_memory_is_that_of_the_evaluated_model():
    run = Simulation("knn-per", blobs([20, 30]), module=Mlp(norm=True), k=3, lam=1.0).run(2)
    for point, model in (("after_fit", run.log[1].uploads[0]), ("after_agg", run.server)):
        weights = run.initial.replace(params=model.params, buffers=model.buffers)
        z = run.learner.features(weights, run.data[0]).double()
        expected = neighbours(z, z, run.data[0].labels, 4, 3, 1.0, True)
        found = getattr(run.log[1], point)[0].scores(run.data[0]).exp()
        assert torch.allclose(found, expected, atol=1e-9)
        assert torch.allclose(found.sum(1), torch.ones(20, dtype=torch.float64))
    near = Simulation("knn-per", blobs([20, 30]), k=1, lam=1.0).run(1).log[0].after_agg[0]
    assert torch.equal(near.scores(run.data[0]).argmax(1), run.data[0].labels)


@pytest.mark.parametrize("pick", ["random", "head"])
def test_a_part_of_the_images_is_remembered(pick):
    run = Simulation("knn-per", blobs([21]), capacity=0.5, memory_pick=pick)
    client = run.client(0, 1)
    memory = run.method.memory(client, client.train)
    assert len(memory) == 10
    assert torch.equal(memory.x, client.train.x[:10]) == (pick == "head")
    assert torch.equal(run.method.memory(run.client(0, 3), run.client(0, 3).train).x, memory.x)


@pytest.mark.parametrize("pick", ["random", "tail"])
def test_lam_is_chosen_on_images_that_nothing_else_sees(pick):
    run = Simulation("knn-per", blobs([20, 1]), lam="auto", val_pick=pick, train={"batch_size": 4, "epochs": 1})
    client = run.client(0, 1)
    kept, held = run.method.parts(client)
    assert (len(kept), len(held)) == (16, 4)
    assert torch.equal(held.x, client.train.x[16:]) == (pick == "tail")
    run.run(2)
    assert run.log[0].steps[0] == 4
    assert run.method.weights(list(run.log[0].uploads.values())) == [16 / 17, 1 / 17]
    mean = (16 * run.log[1].uploads[0].params.double() + run.log[1].uploads[1].params) / 17
    assert torch.allclose(run.server.params, mean.float())
    scores = torch.tensor([[1.0, 0], [1, 0], [0, 1]])
    votes = torch.tensor([[0.0, 1], [1, 0], [0, 1]])
    assert run.method.best_lam(scores, votes, torch.tensor([0, 0, 1])) == 0
    assert run.method.best_lam(scores, votes, torch.tensor([1, 0, 1])) == 0.4


def test_the_memory_helps_where_labels_are_skewed():
    clients, tests = blobs([60], seed=3) + blobs([60], seed=4, shift=1), blobs([200], seed=5)
    train = {"epochs": 1}
    run, plain = (Simulation(m, clients, train=train).run(3) for m in ("knn-per", "fedavg"))
    own = accuracy_of(run.learner, run.log[-1].after_agg[0].scores, tests[0])
    common = accuracy_of(plain.learner, plain.log[-1].after_agg[0], tests[0])
    assert own > common + 0.1


def test_uniform_weights_and_those_of_one_client():
    run = Simulation("knn-per", blobs([9, 17]), weighting="uniform").run(1)
    uploads = list(run.log[0].uploads.values())
    assert run.method.weights(uploads) == [0.5, 0.5]
    alone = Simulation("knn-per", blobs([9]), weighting="samples").run(1)
    assert alone.method.weights(list(alone.log[0].uploads.values())) == [1.0]
