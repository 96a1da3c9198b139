"""fedproto: what the specification promises."""

import json

import pytest
import torch

from fedbench.methods.client import Predictor
from fedbench.methods.fedpac import class_means
from fedbench.methods.fedproto import ALIGN, mean_prototypes, nearness
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close, equal
from tests.runtime.rounds import play, small

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
CLIENTS = [
    ([(1, 0), (3, 2), (0, 1)], [0, 0, 1]),
    ([(0, 2), (2, 1)], [1, 1]),
    ([(2, 1), (2, 0), (5, 0), (1, 1)], [0, 0, 0, 1]),
]
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731


def test_prototypes_and_their_means():
    found = [class_means(exact(z), torch.tensor(y), 3) for z, y in CLIENTS]
    assert close(found[0][0], [2, 1, 0, 1, 0, 0])
    assert close(found[1][0][1], [1, 1.5])
    assert close(found[2][0][:2], [3, 0.333333, 1, 1])
    means, known = mean_prototypes([rows for rows, _ in found], [counts for _, counts in found])
    assert close(means, [2.6, 0.6, 0.75, 1.25, 0, 0])
    assert known.tolist() == [True, True, False]
    even, _ = mean_prototypes([rows for rows, _ in found], [(counts > 0).double() for _, counts in found])
    assert close(even, [2.5, 0.666667, 0.666667, 1.166667, 0, 0])
    features, labels = ([part for client in CLIENTS for part in client[which]] for which in (0, 1))
    pooled, _ = class_means(exact(features), torch.tensor(labels), 3)
    assert torch.allclose(means, pooled, atol=1e-12)


@pytest.mark.parametrize(
    ("align", "values", "slope"),
    [
        ("mean", (1.0, 0.625), [[-0.25, -0.25], [0.5, 0.25], [-0.25, 0], [0, 0]]),
        ("sum", (2.0, 1.25), [[-0.5, -0.5], [1, 0.5], [-0.5, 0], [0, 0]]),
        ("prototype", (1.5, 1.0), [[0.5, 0], [0.5, 0], [-1, 0], [0, 0]]),
    ],
)
def test_the_pull_on_paper(align, values, slope):
    labels, prototypes = torch.tensor([0, 0, 1, 2]), exact([(2, 1), (1, 1), (9, 9)])
    known = exact([1, 1, 0])
    z = exact([(1, 0), (4, 2), (0, 1), (4, 4)]).requires_grad_()
    loss = ALIGN[align](z, labels, prototypes, known)
    assert close(loss, [values[0]])
    assert close(torch.autograd.grad(loss, z)[0], slope)
    z = exact([(1, 0), (3, 2), (0, 1), (4, 4)]).requires_grad_()
    loss = ALIGN[align](z, labels, prototypes, known)
    assert close(loss, [values[1]])
    if align == "prototype":
        assert not torch.autograd.grad(loss, z)[0][:2].any()


def test_the_nearest_known_prototype_is_predicted():
    prototypes = exact([(2.6, 0.6), (0.75, 1.25), (1.5, 1)])
    scores = nearness(exact([(1.5, 1)]), prototypes, torch.tensor([True, True, False]))
    assert close(scores[0, :2], [-1.37, -0.625])
    assert int(scores.argmax()) == 1
    assert float(scores[0, 2]) < -1e300


@pytest.mark.parametrize("options", [{}, {"candidates": "own"}, {"weighting": "uniform"}])
def test_without_a_pull_the_model_is_local(options):
    options = {"predictor": "model", **options}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, **o).run(3)  # noqa: E731
    run, local = make("fedproto", lam=0, **options), make("local")
    assert_same(run, local, ["after_fit"])
    other = make("fedproto", **options)
    assert all(equal(other.log[0].after_fit[i], local.log[0].after_fit[i]) for i in (0, 2))
    assert not equal(other.log[1].after_fit[0], local.log[1].after_fit[0])


def test_a_sum_is_a_mean_with_another_weight():
    make = lambda **o: Simulation("fedproto", blobs([9, 17]), train={"precision": "64-true"}, predictor="model", **o)  # noqa: E731
    assert_near(make(align="sum", lam=0.3).run(3), make(align="mean", lam=1.5).run(3))


def test_bytes_are_those_of_the_prototypes():
    data = blobs([20, 20])
    data[0].labels %= 2
    run = Simulation("fedproto", data).run(2)
    assert run.log[0].up == {0: 4 * 5 * 2 + 1 + 4 * 2, 1: 4 * 5 * 4 + 1 + 4 * 4}
    assert [seen.down[0] for seen in run.log] == [0, 4 * 5 * 4 + 1]
    assert Simulation("fedproto", data, weighting="uniform").run(1).log[0].up[0] == 4 * 5 * 2 + 1
    assert not len(run.server.params)
    assert run.method.global_model(run.server, run.initial) is None


def test_a_class_that_nobody_uploads_keeps_its_prototype():
    data = blobs([20, 20])
    for client, own in enumerate(data):
        own.labels = own.labels % 2 + 2 * client
    run = Simulation("fedproto", data, draw=lambda t: [t % 2]).run(1)
    assert run.server.known.tolist() == [False, False, True, True]
    before = run.server.prototypes.clone()
    run.run(1)
    assert run.server.known.all()
    assert torch.equal(run.server.prototypes[2:], before[2:])


def test_both_points_have_the_model_and_their_own_prototypes():
    run = Simulation("fedproto", blobs([30, 30]), module=Mlp(norm=True))
    run.run(2)
    fit = run.log[1].after_fit[0]
    assert isinstance(fit, Predictor)
    agg = run.log[1].after_agg[0]
    assert equal(fit.loss_of, agg.loss_of)
    x = run.data[0]
    rows = run.server.prototypes
    z = run.learner.features(agg.loss_of, x)
    assert torch.allclose(agg.scores(x), -(z[:, None] - rows).square().sum(2), atol=1e-5)
    assert not torch.equal(fit.scores(x), agg.scores(x))
    assert not isinstance(run.log[0].after_fit[0], Predictor)


def test_own_classes_are_the_candidates_where_any_is_known():
    data = blobs([20, 20])
    data[0].labels = data[0].labels % 2
    data[1].labels = data[1].labels % 2 + 2
    run = Simulation("fedproto", data, candidates="own").run(1)
    assert set(run.log[0].after_agg[0].scores(run.data[0]).argmax(1).tolist()) <= {0, 1}
    alone = Simulation("fedproto", data, candidates="own", draw=lambda t: [0]).run(1)
    assert set(alone.log[0].after_agg[1].scores(run.data[1]).argmax(1).tolist()) <= {0, 1}


def test_the_loss_that_is_reported_is_the_heads(tmp_path):
    """That of the scores would be far above: classes without a prototype have the lowest number."""
    lines = play(small("fedproto", rounds=2), tmp_path)["metrics.jsonl"].splitlines()
    losses = [json.loads(line)["test_loss"] for line in lines]
    assert losses
    assert max(losses) < 10
