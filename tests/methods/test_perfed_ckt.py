"""perfed-ckt: what the specification promises."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.aggregation.clusters import k_means, nearest_centre, squared_distance
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.methods.messages import Upload
from fedbench.methods.perfed_ckt import pull_of_logits, signal_distance
from tests.methods.simulator import Data, Mlp, Simulation, assert_same, blobs, close, equal
from tests.runtime.rounds import small

PUBLIC = blobs([40], seed=7)[0]
SIZES = [9, 17, 12]
PLACES = [(0, 0), (4, 0), (1, 0), (4, 1), (0, 5)]


def run(name="perfed-ckt", rounds=3, norm=False, clients=None, public=PUBLIC, **options) -> Simulation:
    options = ({} if name == "local" else {"first_vote": 1}) | options
    fixed = {k: options.pop(k) for k in ("draw", "train", "module") if k in options}
    module = fixed.pop("module", None) or Mlp(norm)
    return Simulation(name, clients or blobs(SIZES), module=module, public=public, **fixed, **options).run(rounds)


def rows(values) -> list[Tensor]:
    return [torch.tensor(v, dtype=torch.float32) for v in values]


@pytest.mark.parametrize(
    ("clusters", "assigned", "centres"),
    [
        (1, [0, 0, 0, 0, 0], [1.8, 1.2]),
        (2, [0, 0, 0, 0, 1], [2.25, 0.25, 0, 5]),
        (3, [0, 2, 0, 2, 1], [0.5, 0, 0, 5, 4, 0.5]),
    ],
)
def test_k_means(clusters, assigned, centres):
    found, means = k_means(rows(PLACES), clusters, 100)
    assert found == assigned
    assert close(torch.stack(means), centres)
    assert all(mean.dtype == torch.float64 for mean in means)


def test_no_more_clusters_than_points():
    assert len(k_means(rows(PLACES[:2]), 5, 100)[1]) == 2


def test_every_further_start_is_far_from_all_before():
    assert k_means(rows([(0,), (10,), (1,)]), 3, 100)[0] == [0, 1, 2]


def test_ties_go_to_the_lowest_and_an_empty_cluster_keeps_its_centre():
    assigned, centres = k_means(rows([(1, 1)] * 3), 2, 100)
    assert assigned == [0, 0, 0]
    assert [c.tolist() for c in centres] == [[1, 1], [1, 1]]
    assert k_means(rows([(0,), (2,), (-2,)]), 2, 1)[1][1].tolist() == [2]


def test_assignments_are_limited():
    points = rows([(0.0,), (10.0,), (4.9,), (4.8,), (5.1,)])
    once, more = k_means(points, 2, 1), k_means(points, 2, 100)
    assert once[0] == [0, 1, 0, 0, 1]
    assert close(torch.stack(once[1]), [(4.9 + 4.8) / 3, (10 + 5.1) / 2])
    assert more[0] == [0, 1, 0, 0, 0]


points = st.lists(
    st.lists(st.integers(-9, 9).map(float), min_size=2, max_size=2), min_size=1, max_size=9, unique_by=tuple
)


@given(points, st.integers(1, 5))
def test_invariants_of_clusters(values, clusters):
    vectors = rows(values)
    assigned, centres = k_means(vectors, clusters, 100)
    for k in set(assigned):
        members = torch.stack([v.double() for v, own in zip(vectors, assigned, strict=True) if own == k])
        assert torch.allclose(centres[k], members.mean(0))
    assert assigned == [nearest_centre(v, centres) for v in vectors]
    sums = []
    for most in range(1, 8):
        own, means = k_means(vectors, clusters, most)
        sums.append(sum(squared_distance(v, means[k]) for v, k in zip(vectors, own, strict=True)))
    assert all(after <= before + 1e-9 for before, after in pairwise(sums))


@given(points, st.integers(1, 4), st.randoms())
def test_other_numbers_of_clients_rename_clusters_only(values, clusters, random):
    # Distinct distances to everything, so that no tie is decided by a number.
    vectors = [v + torch.tensor([0.0137 * i * i, 0.0071 * i]) for i, v in enumerate(rows(values))]
    order = [0, *random.sample(range(1, len(vectors)), len(vectors) - 1)]
    assigned, _ = k_means(vectors, clusters, 100)
    other, _ = k_means([vectors[i] for i in order], clusters, 100)
    pairs = {(assigned[i], other[n]) for n, i in enumerate(order)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_the_distance_sums_over_classes_and_averages_over_images():
    s = torch.tensor([[1.0, 0, -1], [0, 2, 0]], requires_grad=True)
    q = torch.tensor([[0.0, 0, 0], [1, 1, 0]])
    value = signal_distance(s, q)
    value.backward()
    assert close(value.detach(), [2.0])
    assert close(s.grad, [1, 0, -1, -1, 1, 0])
    assert close(signal_distance(s.detach().softmax(1), q.softmax(1)), [0.206158])


class Twice(LightningModule):
    """Logits that are the images; says how often it was asked."""

    def __init__(self, asked: list[int]) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.head.weight)
        self.head.register_forward_pre_hook(lambda head, given: asked.append(len(given[0])))

    def forward(self, x):
        return self.head(x)

    def training_step(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1])


def test_two_forward_passes_private_first():
    asked: list[int] = []
    net, s = Twice(asked), type("S", (), {"lam": torch.tensor(0.5)})
    private = (torch.zeros(4, 3), torch.zeros(4).long())
    public = (torch.tensor([[1.0, 0, -1], [0, 2, 0]]), torch.tensor([[0.0, 0, 0], [1, 1, 0]]))
    value = pull_of_logits(net, (private, public), s)
    assert asked == [4, 2]
    assert value.item() == pytest.approx(torch.tensor(3.0).log().item() + 0.5 * 2, abs=1e-6)


@pytest.mark.parametrize("signal", ["logits", "probs"])
def test_a_round_is_training_on_the_sum(signal):
    train = {"batch_size": "full", "precision": "64-true", "epochs": 3}
    mine = run(rounds=1, train=train, lam=0.3, signal=signal)
    before = mine.log[0].after_fit
    sent = {i: mine.method.send(mine.server, i).target for i in range(3)}
    mine.round()
    for i in range(3):
        net = Mlp().double()
        nn.utils.vector_to_parameters(before[i].params, net.parameters())
        options = dict(momentum=mine.train.momentum, weight_decay=mine.train.weight_decay)
        optimizer = torch.optim.SGD(net.parameters(), mine.train.lr, **options)
        for _ in range(3):
            optimizer.zero_grad()
            said = net(mine.public.x)
            said = said.softmax(1) if signal == "probs" else said
            gap = ((said - sent[i]) ** 2).sum() / 40
            (F.cross_entropy(net(mine.data[i].x), mine.data[i].labels) + 0.3 * gap).backward()
            optimizer.step()
        expected = nn.utils.parameters_to_vector(net.parameters()).detach()
        assert torch.allclose(mine.log[1].after_fit[i].params, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("signal", ["logits", "probs"])
def test_the_signal_is_that_of_the_trained_model_in_evaluation_mode(signal):
    mine = run(norm=True, signal=signal, rounds=2)
    for seen in mine.log:
        for i, upload in seen.uploads.items():
            logits = mine.learner.logits(seen.after_fit[i], mine.public)
            assert torch.equal(upload.signal, logits.softmax(1) if signal == "probs" else logits)


def test_targets_are_the_nearest_centres_of_the_round_before():
    mine = run(rounds=2, num_clusters=2)
    seen = mine.log[-1]
    assigned, centres = k_means([seen.uploads[i].signal for i in range(3)], 2, 100)
    for i in range(3):
        target = mine.method.send(mine.server, i).target
        assert target.dtype == torch.float32
        assert torch.equal(target, centres[assigned[i]].float())
        assert seen.traces[i, "cluster"] == assigned[i]


def test_as_many_clusters_as_clients_pull_everyone_to_itself():
    mine = run(num_clusters=9)
    for i in range(3):
        assert torch.equal(mine.method.send(mine.server, i).target, mine.log[-1].uploads[i].signal)


def test_one_cluster_has_one_uniform_mean():
    mine = run(num_clusters=1)
    total = sum(mine.log[-1].uploads[i].signal.double() for i in range(3))
    for i in range(3):
        assert torch.equal(mine.method.send(mine.server, i).target, (total / 3).float())


def test_who_sat_out_gets_the_nearest_centre_of_those_who_did_not():
    mine = run(rounds=2, draw=lambda t: [0, 1, 2] if t == 1 else [0, 1], num_clusters=2)
    assert {i for i, name in mine.log[1].traces if name == "cluster"} == {0, 1}
    held = mine.log[0].uploads[2].signal
    centres = [mine.log[1].uploads[i].signal for i in (0, 1)]
    assert torch.equal(mine.method.send(mine.server, 2).target, centres[nearest_centre(held, centres)])


def test_a_first_participation_has_no_target():
    mine = run(rounds=2, draw=lambda t: [0, 1] if t == 1 else [2])
    alone = run("local", rounds=2, draw=lambda t: [0, 1] if t == 1 else [2])
    assert_same(mine, alone)
    assert mine.log[1].down == {2: 0}


def test_without_lam_public_images_are_not_forwarded():
    asked: list[int] = []
    net = Twice(asked)
    clients = [Data(torch.randn(5, 3), torch.arange(5) % 3), Data(torch.randn(4, 3), torch.arange(4) % 3)]
    public = Data(torch.randn(7, 3), torch.zeros(7).long())
    train = {"batch_size": "full", "epochs": 2}
    mine = Simulation("perfed-ckt", clients, module=net, public=public, lam=0, train=train, first_vote=1)
    mine.run(2, evaluate=False)
    assert asked == [5, 5, 7, 4, 4, 7] * 2


def test_round_1_is_a_local_round():
    mine, local = run(norm=True, rounds=1), run("local", norm=True, rounds=1)
    assert_same(mine, local)
    assert not equal(mine.round().after_fit[0], local.round().after_fit[0])


def test_both_points_are_the_same_and_no_parameter_travels():
    mine = run(norm=True, draw=lambda t: [0, 1] if t < 3 else [1, 2])
    for seen in mine.log:
        assert all(equal(seen.after_fit[i], seen.after_agg[i]) for i in seen.after_fit)
        assert all(u.params.numel() == u.buffers.numel() == 0 for u in seen.uploads.values())
    assert equal(mine.log[2].after_agg[0], mine.log[1].after_fit[0])
    assert mine.method.global_model(mine.server, mine.initial) is None


@pytest.mark.parametrize(("precision", "size"), [("32-true", 4), ("64-true", 8)])
def test_bytes(precision, size):
    mine = run(norm=True, train={"precision": precision})
    assert [set(seen.up.values()) for seen in mine.log] == [{size * 40 * 4}] * 3
    assert [set(seen.down.values()) for seen in mine.log] == [{0}, {size * 40 * 4}, {size * 40 * 4}]


def test_fewer_assignments_change_the_centres():
    once, more = (run(rounds=0, kmeans_max_iter=most) for most in (1, 100))
    for mine in (once, more):
        mine.server.round, signals = 1, [(0.0,), (10.0,), (4.9,), (4.8,), (5.1,)]
        mine.method.aggregate(mine.server, [Upload(i, 1, signal=s) for i, s in enumerate(rows(signals))])
    assert not torch.equal(once.server.centres[0], more.server.centres[0])


def test_more_public_images_per_step_than_there_are():
    with pytest.raises(ConfigError, match=r"method\.public_batch_size = 41: there are 40"):
        run(rounds=0, public_batch_size=41)


@pytest.mark.parametrize(
    "option", [{"lam": -1}, {"num_clusters": 0}, {"signal": "x"}, {"public_batch_size": 0}, {"kmeans_max_iter": 0}]
)
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ConfigError, match=f"method.{next(iter(option))}"):
        resolve(small("perfed-ckt", **{f"method__{key}": value for key, value in option.items()}))


def test_clients_with_the_same_labels_end_in_one_cluster():
    own = {0: (0, 1), 1: (2,), 2: (0, 1), 3: (3,)}
    clients = []
    for i, data in enumerate(blobs([80] * 4, seed=3)):
        keep = torch.tensor([label in own[i] for label in data.labels.tolist()])
        clients.append(Data(data.x[keep], data.labels[keep]))
    mine = run(rounds=4, clients=clients, num_clusters=3)
    for seen in mine.log:
        clusters = [seen.traces[i, "cluster"] for i in range(4)]
        assert clusters[0] == clusters[2]
        assert len(set(clusters)) == 3
