"""fedas: what the specification promises."""

import pytest
import torch

from fedbench.methods.fedas import FedAS, class_distances, mean_distances
from fedbench.methods.messages import Upload
from tests.methods.simulator import Data, Mlp, Simulation, assert_near, assert_same, blobs, close, equal
from tests.methods.test_fedrod import Scaled

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1, "precision": "64-true"}
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
DISTANCES = {"samples": class_distances, "means": mean_distances}


@pytest.mark.parametrize(
    ("align", "value", "slope"),
    [
        ("samples", 3.5, [[0, -0.5], [1, 0.5], [0, -2]]),
        ("means", 2.5, [[0.5, 0], [0.5, 0], [0, -2]]),
    ],
)
def test_the_distance_on_paper(align, value, slope):
    z = exact([[1, 0], [3, 2], [0, 1]]).requires_grad_()
    found = DISTANCES[align](z, torch.tensor([0, 0, 1]), exact([[1, 1], [0, 3], [7, 7]]))
    assert close(found.detach(), [value])
    assert close(torch.autograd.grad(found, z)[0], slope)


@pytest.mark.parametrize(
    ("align", "values", "slopes"), [("samples", (2.5, 1.3), (1.4, 1.6)), ("means", (2.25, 0.680625), (1.45, 1.6975))]
)
def test_two_steps_of_alignment_on_paper(align, values, slopes):
    b = 1.0
    for value, after in zip(values, slopes, strict=True):
        w = exact(b).requires_grad_()
        found = DISTANCES[align]((w * exact([[1], [2]])), torch.tensor([0, 0]), exact([[3]]))
        assert close(found.detach(), [value])
        b = float(w - 0.1 * torch.autograd.grad(found, w)[0])
        assert b == pytest.approx(after)


@pytest.mark.parametrize(
    ("fisher", "batch", "trace"),
    [("sample", "full", 2.473327), ("batch", "full", 1.098865), ("batch", 1, 7.419980), ("batch", 2, 2.182899)],
)
def test_the_trace_on_paper(fisher, batch, trace, monkeypatch):
    """Logits W x with W = (0.5, -0.5): the head alone, on a body of 1 that does not move the numbers of the head."""
    data = [Data(torch.tensor([[1.0], [2], [-1]]), torch.tensor([0, 1, 0]))]
    run = Simulation("fedas", data, module=Scaled(), train=PLAIN | {"batch_size": batch}, classes=2, fisher=fisher)
    client, head = run.client(0, 1), run.context.layout.mask("head")
    gradient, squares = run.learner.gradient, run.learner.squared_gradients
    run.learner.gradient = lambda *a: (None, torch.where(head, gradient(*a)[1], 0))
    run.learner.squared_gradients = lambda *a: torch.where(head, squares(*a), 0)
    monkeypatch.setattr(
        "fedbench.methods.fedas.shuffled_batches", lambda c, stream, size, epochs: torch.arange(3).split(size)
    )
    assert run.method.fisher_trace(client, run.initial) == pytest.approx(trace, abs=5e-7)


def test_bodies_are_weighted_by_the_traces():
    run = Simulation("fedas", blobs([9] * 3))
    none = torch.zeros(0)
    bodies = [torch.tensor(b) for b in ([1.0, 2.0], [5.0, -2.0], [9.0, 9.0])]

    def mean(traces):
        uploads = [
            Upload(i, 9, params=b, buffers=none, counters=none, fisher=torch.tensor(f))
            for i, (b, f) in enumerate(zip(bodies, traces, strict=True))
        ]
        run.method.aggregate(run.server, uploads)
        return run.server.params

    assert close(mean((0.2, 0.6, 0.0)), [4, -1])
    assert close(mean((2.0, 6.0, 0.0)), [4, -1])
    assert close(mean((0.0, 0.0, 0.0)), [5, 3])


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_without_alignment_and_synchronisation_it_is_fedper(weighting):
    more = {"draw": SOME, "weighting": weighting}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    run, per = make("fedas", align_epochs=0), make("fedper")
    assert_same(run, per)
    assert [seen.up for seen in run.log] == [seen.up for seen in per.log]


def test_class_means_of_the_whole_set_are_aligned_in_round_one():
    train = PLAIN | {"lr": 0.1}
    make = lambda m, **o: Simulation(m, blobs([20]), train=train, **o).run(1)  # noqa: E731
    assert_near(make("fedas", align="means", align_batch_size="full"), make("local"), ["after_fit"])
    assert_same(make("fedas", first="skip"), make("fedper"), ["after_fit"])


def test_the_next_round_starts_from_what_was_evaluated(monkeypatch):
    run = Simulation("fedas", blobs([20, 30, 25]), module=Mlp(norm=True), draw=SOME, align_lr=0.1).run(1)
    received, train = [], FedAS.train
    monkeypatch.setattr(FedAS, "train", lambda self, c, r: received.append((c.id, r)) or train(self, c, r))
    run.run(1)
    assert len(received) == 2
    for client, model in received:
        assert equal(model, run.log[0].after_agg[client])


def test_alignment_moves_the_body_alone_and_lowers_the_distance():
    run = Simulation("fedas", blobs([20, 30]), module=Mlp(norm=True), train=PLAIN, align_lr=0.05).run(1)
    head = run.context.layout.mask("head")
    client = run.client(0, 1)
    plain = super(type(run.method), run.method).receive(client)
    aligned = run.method.receive(client)
    assert torch.equal(aligned.params[head], run.log[0].after_fit[0].params[head])
    assert torch.equal(aligned.buffers, plain.buffers)
    labels = run.data[0].labels
    own = run.learner.features(run.states[0].last, run.data[0])
    member = torch.nn.functional.one_hot(labels, 4).double()
    means = member.T @ own / member.sum(0).clamp(min=1)[:, None]
    far = [float(class_distances(run.learner.features(m, run.data[0]), labels, means)) for m in (plain, aligned)]
    assert far[1] < far[0]
    assert equal(run.personal(0), run.personal(0))
    assert run.server.params.numel() == int((~head).sum())


def test_its_rate_is_that_of_the_round_to_come():
    train = PLAIN | {"lr_decay": 0.5, "lr": 1e-9}
    own = {"align_batch_size": "full", "first": "initial"}
    rates = []
    run = Simulation("fedas", blobs([20, 30]), train=train, align_lr=0.1, **own).run(2)
    client = run.client(0, 2)
    body = run.method.shared_params.mask
    gradient = run.learner.gradient
    run.learner.gradient = lambda *a: rates.append(gradient(*a)) or rates[-1]
    plain = super(type(run.method), run.method).receive(client)
    aligned = run.method.receive(client)
    assert torch.allclose(aligned.params, plain.params - 0.1 * 0.25 * rates[0][1], rtol=0, atol=1e-12)
    assert not rates[0][1][~body].any()


def test_bytes_are_those_of_the_body_and_a_number():
    run = Simulation("fedas", blobs([9, 17]), module=Mlp(norm=True)).run(1)
    assert set(run.log[0].up.values()) == {4 * (79 - 24) + 4}
    assert set(run.log[0].down.values()) == {4 * (79 - 24)}
    assert run.log[0].traces[0, "fisher"] > 0
