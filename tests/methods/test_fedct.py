"""fedct: what the specification promises."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from lightning import LightningModule
from torch import nn

from fedbench.config import TrainConfig
from fedbench.errors import ConfigError
from fedbench.methods.fedct import FedCT, Union, pooled_loss
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import Context
from fedbench.module.layout import Layout
from tests.methods.simulator import Data, Mlp, Simulation, accuracy_of, assert_same, blobs, close, equal

PUBLIC = blobs([40], seed=7)[0]
SIZES = [9, 17, 12]
FULL = {"batch_size": "full", "epochs": 1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}


def run(name="fedct", rounds=3, norm=False, clients=None, public=PUBLIC, **options) -> Simulation:
    options = ({} if name == "local" else {"first_vote": 1}) | options
    fixed = {k: options.pop(k) for k in ("draw", "train", "seed") if k in options}
    return Simulation(name, clients or blobs(SIZES), module=Mlp(norm), public=public, **fixed, **options).run(rounds)


def method(classes=3, public=4, rounds=10, **options) -> FedCT:
    context = Context(Layout((), (), ()), TrainConfig(), 0, rounds, classes, (4, 4, 4), public)
    made = FedCT(FedCT.Options(**{"first_vote": 1, **options}), context)
    made.check()
    return made


LABELS = [(0, 2, 1, 2), (1, 2, 1, 0), (2, 1, 0, 1), (0, 1, 0, 2)]


def consensus(labels, samples=None, made=None):
    """The votes of clients with these labels, and the server after them."""
    made = made or method(public=len(labels[0]))
    uploads = [Upload(i, (samples or [1] * 9)[i], labels=torch.tensor(y)) for i, y in enumerate(labels)]
    server = made.Server(*[torch.empty(0)] * 3, round=1, participants=[*range(len(labels))])
    made.aggregate(server, uploads)
    return sum(made.ballot(u) * made.weight(u)[:, None] for u in uploads), server


@pytest.mark.parametrize("samples", [None, [1000, 1, 1, 1]])
def test_votes(samples):
    votes, server = consensus(LABELS, samples)
    assert votes.tolist() == [[2, 1, 1], [0, 2, 2], [2, 2, 0], [1, 1, 2]]
    assert server.labels.tolist() == [0, 1, 0, 2]
    assert server.traces[-1, "margin"] == (1 + 0 + 0 + 1) / 4
    assert [server.traces[i, "agreement"] for i in range(4)] == [0.5, 0, 0.5, 1]


@given(st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=6), st.randoms())
def test_invariants_of_the_vote(labels, random):
    votes, server = consensus(labels)
    assert (votes.sum(1) == len(labels)).all()
    assert ((server.labels >= 0) & (server.labels < 3)).all()
    for j, counts in enumerate(votes.tolist()):
        won = int(server.labels[j])
        assert counts[won] == max(counts)
        assert all(count < counts[won] for count in counts[:won])
    random.shuffle(labels)
    turned, same = consensus(labels)
    assert torch.equal(votes, turned)
    assert torch.equal(server.labels, same.labels)


def test_votes_are_those_of_the_trained_model_in_evaluation_mode():
    for seen in (mine := run(norm=True, rounds=2)).log:
        for i, upload in seen.uploads.items():
            assert torch.equal(upload.labels, mine.learner.logits(seen.after_fit[i], mine.public).argmax(1))
            assert upload.params.numel() == upload.buffers.numel() == 0
            assert "expertise" not in upload


def test_how_many_labels_changed_is_traced():
    mine = run(rounds=1)
    assert (-1, "changed") not in mine.log[0].traces
    before = mine.server.labels
    for _ in range(2):
        seen = mine.round()
        assert seen.traces[-1, "changed"] == int((mine.server.labels != before).sum())
        before = mine.server.labels


class Linear(LightningModule):
    """logits = x W^T."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2, bias=False)
        self.head.weight.data = torch.tensor([[0.2, -0.1], [0.0, 0.3]])

    def forward(self, x):
        return self.head(x)

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)


PRIVATE = Data(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([0, 1]))
OTHERS = Data(torch.tensor([[1.0, -1.0], [2.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0, 0]))


@pytest.mark.parametrize("combine", ["union", "paired"])
def test_one_step(combine):
    mine = Simulation(
        "fedct", [PRIVATE], module=Linear(), public=OTHERS, train=FULL | {"lr": 0.5}, combine=combine, first_vote=1
    )
    mine.server.labels = OTHERS.labels
    seen = mine.round()
    assert close(seen.after_fit[0].params, [0.306511, 0.079815, -0.106511, 0.120185])
    assert mine.learner.ledger.loss == pytest.approx(0.769081, abs=1e-6)


def test_the_gradient_of_the_union():
    net = Linear().double()
    batches = [(data.x.double(), data.labels) for data in (PRIVATE, OTHERS)]
    loss = pooled_loss(net, batches, None)
    loss.backward()
    assert close(loss.detach(), [0.769081])
    assert close(net.head.weight.grad, [-0.213023, -0.359629, 0.213023, 0.359629])


@given(st.permutations(range(5)), st.integers(0, 5))
def test_a_batch_of_the_union_has_the_order_asked_for(order, count):
    index = torch.tensor(order[:count], dtype=torch.int64)
    x, y = Union(PRIVATE, OTHERS).batch(index)
    assert torch.equal(x, torch.cat([PRIVATE.x, OTHERS.x])[index])
    assert torch.equal(y, torch.cat([PRIVATE.labels, OTHERS.labels])[index])


def test_a_batch_of_images_keeps_its_memory_format():
    images = torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    data = Data(images, torch.arange(4))
    x, _ = Union(data, data).batch(torch.tensor([7, 0, 4]))
    assert torch.equal(x, images[[3, 0, 0]])
    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("combine", "expected"), [("union", [7, 8, 7]), ("paired", [2, 3, 2]), ("sum", [2, 3, 2])])
def test_steps_of_an_epoch(combine, expected):
    mine = run(rounds=1, combine=combine, train={"epochs": 1, "batch_size": 8})
    steps = []
    for i in range(3):
        client, before = mine.client(i, 2), mine.learner.ledger.steps
        mine.method.train(client, mine.method.receive(client))
        steps.append(mine.learner.ledger.steps - before)
    assert steps == expected


@pytest.mark.parametrize("combine", ["union", "paired", "sum"])
def test_round_1_is_a_local_round(combine):
    assert_same(run(norm=True, rounds=1, combine=combine), run("local", norm=True, rounds=1))


def test_paired_is_the_union_with_full_batches():
    train = {"batch_size": "full", "precision": "64-true", "epochs": 2}
    pool, pair = (run(norm=True, train=train, combine=combine) for combine in ("union", "paired"))
    for a, b in zip(pool.log, pair.log, strict=True):
        for i in range(3):
            assert torch.allclose(a.after_fit[i].params, b.after_fit[i].params, rtol=0, atol=1e-12)
    train["shuffle"] = False
    assert_same(run(norm=True, train=train), run(norm=True, train=train, combine="paired"))


@pytest.mark.parametrize("train", [{"momentum": 0.9, "keep_optimizer": True}, {"epochs": 1, "steps": 5}])
def test_the_sum_is_fedmosaic_with_equal_expertise_and_a_fixed_lambda(train):
    mine = run(norm=True, combine="sum", public_weight=0.3, train=train)
    fixed = {"expertise": "equal", "lambda_mode": "fixed", "lambda_value": 0.3}
    other = run("fedmosaic", norm=True, train=train, **fixed)
    assert_same(mine, other)
    assert [seen.up for seen in mine.log] == [seen.up for seen in other.log]


def test_a_step_of_the_union_is_a_step_of_the_sum_with_other_factors():
    labels, n, public = torch.arange(40) % 4, 9, 40

    def step(rate, **options):
        mine = run(rounds=0, clients=blobs([n]), train=FULL | {"lr": rate}, **options)
        mine.server.labels = labels
        return mine.round().after_fit[0].params

    one = step(0.2)
    other = step(0.2 * n / (n + public), combine="sum", public_weight=public / n)
    assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_both_points_are_the_same_vector():
    mine = run(norm=True, draw=lambda t: [0, 1] if t < 3 else [1, 2])
    for seen in mine.log:
        assert all(equal(seen.after_fit[i], seen.after_agg[i]) for i in seen.after_fit)
    assert equal(mine.log[2].after_agg[0], mine.log[1].after_fit[0])
    assert mine.method.after_fit == "after_agg"
    assert mine.method.global_model(mine.server, mine.initial) is None


@pytest.mark.parametrize("combine", ["union", "paired", "sum"])
def test_the_trainer_engine_gives_the_same(combine):
    engines = [run(rounds=2, norm=True, combine=combine, train={"engine": e}) for e in ("loop", "trainer")]
    assert_same(*engines)


def test_only_participants_vote_and_who_returns_gets_the_newest_labels():
    mine = run(rounds=2, draw=lambda t: [0, 1] if t == 1 else [1])
    assert torch.equal(mine.server.labels, mine.log[1].uploads[1].labels)
    seen = []
    train = mine.method.train
    mine.method.train = lambda client, received: seen.append(client.message.labels) or train(client, received)
    mine.draw = lambda t: [0, 2]
    labels = mine.server.labels
    mine.round()
    assert all(torch.equal(got, labels) for got in seen)
    assert len(seen) == 2


def test_a_communication_period_keeps_the_labels():
    mine = run(rounds=5, communication_period=2)
    voted = [{"labels" in upload for upload in seen.uploads.values()} for seen in mine.log]
    assert voted == [{False}, {True}, {False}, {True}, {False}]
    assert_same(run(rounds=2, communication_period=2), run("local", rounds=2))
    assert not equal(mine.log[2].after_fit[0], run("local").log[2].after_fit[0])


@pytest.mark.parametrize(
    ("public", "classes", "options", "bits"),
    [
        (10000, 10, {}, 40000),
        (3000, 10, {}, 12000),
        (10000, 10, {"label_privacy": "xor", "label_epsilon": 1.0}, 100000),
        (10000, 10, {"label_privacy": "krr", "label_epsilon": 1.0}, 40000),
        (80, 2, {}, 80),
    ],
)
def test_bits_up(public, classes, options, bits):
    made = method(classes, public, **options)
    sent = made.noisy_labels(torch.zeros(public, dtype=torch.int64), torch.Generator())
    assert 8 * Message(**sent).nbytes == bits


def test_bytes_of_rounds():
    mine = run(norm=True)
    assert [seen.up[0] for seen in mine.log] == [10, 10, 10]
    assert [seen.down[0] for seen in mine.log] == [0, 10, 10]


@pytest.mark.parametrize(
    ("options", "epsilon"),
    [
        ({"label_privacy": "krr", "label_epsilon": 0.5, "label_sensitivity": 3}, 1.5),
        ({"label_privacy": "krr", "label_epsilon": 0.5}, 20.0),
        ({"label_privacy": "xor", "label_epsilon": 0.5}, 0.5),
    ],
)
def test_the_budget_is_said_and_traced(options, epsilon):
    mine = run(draw=lambda t: [0, 1] if t == 2 else [0], **options)
    assert [seen.traces.get((i, "epsilon")) for seen in mine.log for i in (0, 1)] == [
        *(epsilon, None),
        *(2 * epsilon, epsilon),
        *(3 * epsilon, None),
    ]
    said = [f"fedct: one upload spends epsilon {epsilon:g}, all 10 of them {10 * epsilon:g}"]
    assert list(mine.method.check()) == said
    assert list(run(rounds=0).method.check()) == []


def test_no_noise_is_the_limit_of_a_large_budget():
    plain = run(rounds=2)
    for kind in ("krr", "xor"):
        assert_same(plain, run(rounds=2, label_privacy=kind, label_epsilon=1e6))


def test_noise_reaches_the_vote():
    noisy, plain = (run(rounds=1, **o) for o in ({"label_privacy": "krr", "label_epsilon": 0.5}, {}))
    assert not torch.equal(noisy.server.labels, plain.server.labels)
    rows = run(rounds=1, label_privacy="xor", label_epsilon=0.5).log[0].uploads[0].rows
    assert set(rows.sum(1).tolist()) > {1}


@pytest.mark.parametrize(
    "options",
    [
        {"label_privacy": "krr"},
        {"label_epsilon": 1.0},
        {"label_sensitivity": 2},
        {"public_weight": 0.5},
        {"combine": "paired", "public_weight": 0.5},
        {"public_batch_size": 2},
        {"combine": "paired", "public_batch_size": 5},
    ],
)
def test_options_that_contradict_each_other_are_refused(options):
    with pytest.raises(ConfigError, match=r"method\."):
        method(**options)


def test_similar_clients_with_few_images_gain_over_local_training():
    clients, public, held = blobs([6] * 8, seed=3), blobs([100], seed=5)[0], blobs([400], seed=11)[0]
    train = {"lr": 0.3, "batch_size": "full", "epochs": 40}  # models that know something before the first vote

    def accuracy(name):
        mine = Simulation(name, clients, module=Mlp(), public=public, train=train).run(3)
        return sum(accuracy_of(mine.learner, mine.log[-1].after_agg[i], held) for i in range(8)) / 8

    assert accuracy("fedct") > accuracy("local") + 0.03
