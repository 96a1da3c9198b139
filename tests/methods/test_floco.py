"""floco: what the specification promises."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench.aggregation.means import weighted_mean
from fedbench.aggregation.simplex import project, walk
from fedbench.engine.fit import Loss, Step
from fedbench.engine.learner import Learner
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.methods.base import ModelFacts
from fedbench.methods.floco import Mixture, mixed_loss
from fedbench.methods.messages import Message
from fedbench.module.weights import Weights
from fedbench.results.reader import Records
from tests.methods.simulator import Data, Mlp, Simulation, assert_same, blobs, close, equal
from tests.runtime.rounds import play, small

SIZES = [9, 17, 12, 20]
FEW = {"endpoints": 3, "tau": 2}


def run(name="floco", rounds=4, norm=False, clients=SIZES, **options) -> Simulation:
    harness = {key: options.pop(key) for key in ("draw", "train", "seed", "module") if key in options}
    harness = {"module": Mlp(norm), "rounds": 10, **harness}
    evaluate = options.pop("evaluate", True)
    if name == "floco":
        options = {**FEW, **options}
    return Simulation(name, blobs(clients), **harness, **options).run(rounds, evaluate)


def coordinates(simulation, weights) -> torch.Tensor:
    return weights.buffers[simulation.method.mixtures.buffers]


def mixed(simulation, weights) -> Weights:
    """The mixture as weights of the plain model: body, mixed head weight, bias."""
    layout, endpoints = simulation.context.layout, simulation.method.mixtures.params
    head = weights.params[endpoints].view(-1, 20)
    place = coordinates(simulation, weights)
    rest = weights.params[~endpoints]  # body, then the bias of the head
    weight = sum(a * row for a, row in zip(place, head, strict=True))
    params = torch.cat([rest[: layout.size - len(head) * 20 - 4], weight, rest[-4:]])
    return weights.replace(params=params, buffers=weights.buffers[~simulation.method.mixtures.buffers])


THIRDS = [1 / 3] * 3


BETA = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


@pytest.mark.parametrize(("sampling", "inside"), [("l1_free", False), ("l1_simplex", True)])
def test_a_client_with_a_centre_walks_near_it(sampling, inside):
    mine = run(rounds=0, rho=0.5, subregion_sampling=sampling)
    mine.server.centres = dict.fromkeys(range(4), BETA)
    client = mine.client(1, 3)
    expected = walk((6, 3), client.generator("coordinates"), BETA, 0.5, inside)
    assert torch.equal(mine.method.coordinates_of_steps(client, "fit", 6), expected)


def test_every_batch_has_coordinates_of_its_own():
    mine, seen = run(rounds=0, clients=[17] * 3), []
    forward = Mixture.forward
    try:
        Mixture.forward = lambda self, w: (
            (seen.append(self.coordinates.clone()) if self.training else None) or forward(self, w)
        )
        mine.run(1)
    finally:
        Mixture.forward = forward
    assert len(seen) == 3 * 2 * 3  # clients, epochs, batches
    assert len({tuple(a.tolist()) for a in seen}) == len(seen)
    assert all(close(a.sum(), [1]) for a in seen)


def test_the_gradient_of_an_endpoint_is_its_share_of_the_mixed_weights():
    mine = run(rounds=0)
    client, learner = mine.client(0, 1), mine.learner
    path = torch.tensor([[0.2, 0.5, 0.3]])
    needs = SimpleNamespace(path=path, step=torch.zeros(1, dtype=torch.int64))
    batch = client.train.batch(torch.arange(9))
    loss, gradient = learner.gradient(learner.initial(), batch, lambda net, batch, s: mixed_loss(net, batch, needs))
    plain = Learner(Mlp(), mine.train)
    at = mine.method.mixture_at(learner.initial(), path[0])
    _, whole = plain.gradient(mixed(mine, at), batch, task_loss)
    for a, row in zip(path[0], gradient[mine.method.mixtures.params].view(3, 20), strict=True):
        assert torch.allclose(row, a * whole[35:55], atol=1e-7)
    assert torch.allclose(gradient[~mine.method.mixtures.params], torch.cat([whole[:35], whole[55:]]), atol=1e-7)
    assert float(loss) == pytest.approx(float(plain.loss(mixed(mine, at), client.train)), abs=1e-6)


def test_endpoints_have_streams_of_their_own():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    mine, other = run(rounds=0, seed=3), run(rounds=0, seed=4)
    rows, later = (s.server.params[s.method.mixtures.params].view(3, 20) for s in (mine, other))
    for m in range(3):
        drawn = nn.init.xavier_normal_(torch.empty(4, 5), generator=torch.Generator().manual_seed(3 + m))
        assert torch.equal(rows[m], drawn.flatten())
    assert torch.equal(rows[1:], later[:2])
    noisy = run(rounds=0, seed=3, endpoint_init="jitter")
    torch.manual_seed(1)
    start = Mlp().head.weight.detach().flatten()
    for m, row in enumerate(noisy.server.params[noisy.method.mixtures.params].view(3, 20)):
        noise = torch.randn(4, 5, generator=torch.Generator().manual_seed(3 + m)).flatten()
        assert torch.allclose(row, start + 0.1 * noise)
    module = Mlp()
    torch.set_rng_state(state)
    Learner(
        module,
        mine.train,
        adapt=lambda m, layout: mine.method.adapt_model(m, layout, mine.method.options, ModelFacts(3)),
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_body_and_bias_start_as_ever():
    mine = run(rounds=0)
    plain = Learner(Mlp(), mine.train).initial().params
    assert torch.equal(mine.server.params[~mine.method.mixtures.params], torch.cat([plain[:35], plain[55:]]))


def test_endpoints_have_the_type_of_the_parameters():
    mine = run(rounds=0, train={"precision": "64-true"})
    drawn = nn.init.xavier_normal_(torch.empty(4, 5, dtype=torch.float64), generator=torch.Generator().manual_seed(0))
    assert torch.equal(mine.server.params[mine.method.mixtures.params][:20], drawn.flatten())


def test_a_head_of_several_layers_mixes_every_weight():
    class Deep(Mlp):
        def __init__(self):
            super().__init__()
            self.head = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4))

    mine = run(module=Deep(), rounds=3)
    assert int(mine.method.mixtures.params.sum()) == 3 * (35 + 28)
    assert int(mine.method.mixtures.buffers.sum()) == 6
    a = coordinates(mine, mine.log[2].after_agg[0])
    assert torch.equal(a[:3], a[3:])
    assert not torch.equal(a, torch.full_like(a, 1 / 3))


class Tied(Mlp):
    def __init__(self):
        super().__init__()
        self.other = nn.Linear(5, 4)
        self.other.weight = self.head.weight


class Normed(Mlp):
    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.head)


class Headless(LightningModule):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 4)


@pytest.mark.parametrize(("module", "message"), [(Tied, "shared with"), (Normed, "parametrized"), (Headless, "head")])
def test_heads_that_cannot_be_mixed_are_refused(module, message):
    with pytest.raises(ConfigError, match=message):
        run(module=module(), rounds=0)


class FromEndpoint(Mlp):
    """Starts with the first endpoint as its head."""

    def __init__(self, norm):
        super().__init__(norm)
        self.double()
        nn.init.xavier_normal_(self.head.weight, generator=torch.Generator().manual_seed(0))


def same(a, b) -> bool:
    """Equal to rounding: the optimiser's last bits depend on where in the vector a parameter lies."""
    return all(torch.allclose(getattr(a, n), getattr(b, n), rtol=0, atol=1e-12) for n in ("params", "buffers"))


def test_one_endpoint_is_fedavg():
    shared = {"draw": lambda t: [0, 2] if t % 2 else [1, 3], "train": {"precision": "64-true"}, "rounds": 3}
    mine = run(norm=True, endpoints=1, tau=None, **shared)
    plain = run("fedavg", module=FromEndpoint(norm=True), **shared)
    for one, other in zip(mine.log, plain.log, strict=True):
        for point in ("after_fit", "after_agg"):
            left, right = getattr(one, point), getattr(other, point)
            assert all(same(mixed(mine, left[i]), right[i]) for i in left)


def test_a_private_mixture_of_one_endpoint_is_local_training():
    shared = {"train": {"shuffle": False, "precision": "64-true"}, "rounds": 2}
    mine = run(norm=True, endpoints=1, tau=None, personal_epochs=2, lam=0, **shared)
    alone = run("local", module=FromEndpoint(norm=True), **shared)
    for one, other in zip(mine.log, alone.log, strict=True):
        for i in range(4):
            assert same(mixed(mine, one.after_fit[i]), other.after_fit[i])
            assert equal(one.after_fit[i], one.after_agg[i])


def test_no_radius_means_the_centre_in_every_batch():
    runs = [run(tau=0, rounds=0, **options) for options in ({"rho": 0}, {"alpha_sampling": "center"}, {})]
    for simulation in runs:
        simulation.server.centres = dict.fromkeys(range(4), BETA)
        simulation.run(2)
    assert_same(*runs[:2])
    assert not equal(runs[0].log[0].after_fit[0], runs[2].log[0].after_fit[0])


def test_everybody_is_at_the_middle_until_the_projection():
    mine = run(rounds=4, draw=lambda t: [0, 1])
    for t, seen in enumerate(mine.log):
        for weights in seen.after_fit.values():
            assert close(coordinates(mine, weights), THIRDS) == (t < 2)
        for i, weights in seen.after_agg.items():
            centre = mine.server.centres[i].float()
            assert torch.equal(coordinates(mine, weights), torch.full((3,), 1 / 3) if t < 2 else centre)
    assert len({tuple(c.tolist()) for c in mine.server.centres.values()}) == 4


def test_the_projection_asks_everybody_and_changes_no_model():
    mine, other = run(rounds=2, draw=lambda t: [0, 1]), run(rounds=2, draw=lambda t: [0, 1], tau=5)
    assert set(mine.server.centres) == {0, 1, 2, 3}
    assert other.server.centres is None
    assert torch.equal(mine.server.params, other.server.params)
    assert mine.states.keys() == other.states.keys() == {0, 1}
    assert all(equal(mine.states[i].last, other.states[i].last) for i in (0, 1))


@pytest.mark.parametrize("keep", [False, True])
def test_the_projection_trains_as_a_round_before_it_would(keep):
    mine = run(rounds=2, tau=5, train={"lr_decay": 0.5, "momentum": 0.9, "keep_optimizer": keep})
    asked = mine.client(2, 2)
    asked.decay = 0.25  # of the round to come
    answer = mine.method.answer(asked).endpoints
    memory = copy.deepcopy(mine.client(2, 2).state.optimizers.get("fit"))
    if keep:
        assert torch.equal(asked.state.optimizers["fit"]["optimizer"]["momentum_buffer"], momentum(memory))
        assert momentum(memory).any()
    assert asked.state.optimizers.keys() == ({"fit"} if keep else set())
    client = mine.client(2, 2)
    client.decay = 0.25
    path = walk((4, 3), client.generator("coordinates-projection"))
    loss = Loss(mixed_loss, path=path.float(), step=torch.zeros(1, dtype=torch.int64))
    start, step = mine.method.receive(client), Step(memory=memory)
    trained = client.fit(start, client.train, "projection", loss=loss, step=step)
    assert torch.equal(answer, trained.params[mine.method.mixtures.params])


def momentum(memory) -> torch.Tensor:
    return memory["optimizer"]["momentum_buffer"]


def test_centres_are_those_of_the_answers():
    mine = run(rounds=1)
    rows = torch.randn(4, 60, generator=torch.Generator().manual_seed(1))
    mine.method.conclude(mine.server, {i: Message(endpoints=rows[i]) for i in (3, 1, 0)})
    expected = project(rows[[0, 1, 3]], 3)
    assert all(torch.equal(mine.server.centres[i], expected[k]) for k, i in enumerate((0, 1, 3)))
    assert torch.equal(mine.method.send(mine.server, 2).centre, mine.method.middle)  # gave no answer


def test_clients_with_the_same_labels_get_near_centres():
    clients = []
    for i, data in enumerate(blobs([60] * 6)):
        keep = data.labels % 2 == i % 2
        clients.append(Data(data.x[keep], data.labels[keep]))
    mine = Simulation("floco", clients, **FEW).run(2, evaluate=False)
    centres = torch.stack([mine.server.centres[i] for i in range(6)])
    apart = torch.cdist(centres, centres)
    even = [i for i in range(6) if i % 2 == 0]
    odd = [i for i in range(6) if i % 2]
    near = max(float(apart[g][:, g].max()) for g in (even, odd))
    assert near < float(apart[even][:, odd].min())


def test_the_mean_of_mixtures_is_the_mixture_of_means():
    mine = run(rounds=1)
    seen, place = mine.log[0], torch.tensor([0.2, 0.5, 0.3])
    rows = [mixed(mine, mine.method.mixture_at(weights, place)).params for weights in seen.after_fit.values()]
    means = weighted_mean(rows, [size / 58 for size in SIZES])
    whole = mine.method.mixture_at(seen.after_agg[0], place)
    assert torch.allclose(mixed(mine, whole).params, means, atol=1e-6)


def test_the_private_mixture_is_pulled_to_the_received_one():
    """One full batch: the step is that of the data gradient plus lam times the distance."""
    train = {"batch_size": "full", "momentum": 0, "weight_decay": 0, "epochs": 1, "lr": 0.1}
    runs = [
        run(rounds=2, train=train, personal_epochs=1, lam=lam, alpha_sampling="center", tau=None) for lam in (0.0, 2.0)
    ]
    for simulation in runs:
        first, second = (simulation.log[t].after_fit[1] for t in (0, 1))
        payload = server_after_first(simulation)
        batch = simulation.client(1, 2).train.batch(torch.arange(17))
        _, slope = simulation.learner.gradient(first, batch)
        lam = simulation.method.options.lam
        expected = first.params - 0.1 * (slope + lam * (first.params - payload))
        assert torch.allclose(second.params, expected, atol=1e-6)


def server_after_first(simulation):
    uploads = simulation.log[0].uploads.values()
    return weighted_mean([u.params for u in uploads], [u.samples / 58 for u in uploads])


def test_the_private_mixture_does_not_touch_the_shared_one():
    plus, plain = run(personal_epochs=2, norm=True), run(norm=True)
    assert torch.equal(plus.server.params, plain.server.params)
    assert torch.equal(plus.server.buffers, plain.server.buffers)
    for seen in plus.log:
        for i in range(4):
            assert torch.equal(seen.after_fit[i].params, seen.after_agg[i].params)
            own = ~plus.method.mixtures.buffers
            assert torch.equal(seen.after_fit[i].buffers[own], seen.after_agg[i].buffers[own])
            assert not torch.equal(seen.after_fit[i].buffers, seen.uploads[i].buffers)


@pytest.mark.parametrize(("train", "steps"), [({}, 4 * 3 + 2 * 3), ({"steps": 5}, 5 + 4), ({"batch_size": "full"}, 6)])
def test_private_epochs_are_steps_where_the_work_is_in_steps(train, steps):
    train = {"epochs": 4, **train}
    personal = 2 if train.get("steps") is None else 4
    mine = run(clients=[17], endpoints=1, tau=None, rounds=1, personal_epochs=personal, train=train)
    assert mine.learner.ledger.steps == steps


def test_who_sits_out_keeps_centre_and_private_mixture():
    mine = run(rounds=4, personal_epochs=1, draw=lambda t: [0, 1, 2] if t == 1 else [0, 1])
    assert torch.equal(mine.log[3].after_agg[2].params, mine.log[0].after_fit[2].params)
    assert torch.equal(mine.log[3].after_agg[3].params, mine.initial.params)
    assert torch.equal(coordinates(mine, mine.log[3].after_agg[3]), mine.server.centres[3].float())


@pytest.mark.parametrize("personal_epochs", [0, 1])
def test_who_sits_out_rests_at_its_own_centre(personal_epochs):
    mine = run(rounds=4, personal_epochs=personal_epochs, draw=lambda t: [0, 1, 2] if t == 1 else [0, 1])
    resting = mine.method.idle_model(mine.client(2, 4))
    assert torch.equal(resting.params, mine.log[0].after_fit[2].params)
    assert torch.equal(coordinates(mine, resting), mine.server.centres[2].float())
    assert not torch.equal(coordinates(mine, mine.log[0].after_fit[2]), coordinates(mine, resting))


def test_who_sits_out_is_scored_anew_once_the_projection_is_made(tmp_path):
    play(small("floco", rounds=5, participation=0.5, method__tau=2, method__endpoints=3), tmp_path)
    scores = Records(tmp_path).clients().query("point == 'after_fit'")
    loss, took_part = (scores.pivot(index="round", columns="client", values=v) for v in ("test_loss", "participated"))
    assert (loss.loc[3] != loss.loc[2])[~took_part.loc[3]].any()
    assert (loss.loc[4] == loss.loc[3])[~took_part.loc[4]].all()


@pytest.mark.parametrize("personal_epochs", [0, 1])
def test_who_never_trained_is_at_the_middle_at_both_points_until_the_projection(personal_epochs):
    mine = run(rounds=0, personal_epochs=personal_epochs, draw=lambda t: [0, 1, 2])
    for t in (1, 2, 3):
        mine.round()
        client = mine.client(3, t)
        place = torch.full((3,), 1 / 3) if t <= 2 else mine.server.centres[3].float()
        assert torch.equal(coordinates(mine, mine.method.idle_model(client)), place)
        assert torch.equal(coordinates(mine, mine.log[-1].after_agg[3]), place)


def test_optimisers_may_be_kept_apart():
    mine = run(rounds=2, personal_epochs=1, train={"keep_optimizer": True})
    assert mine.states[0].optimizers.keys() == {"fit", "personal"}
    other = run(rounds=2, personal_epochs=1)
    assert not equal(mine.log[1].after_fit[0], other.log[1].after_fit[0])
    assert not torch.equal(mine.log[1].uploads[0].params, other.log[1].uploads[0].params)


def test_statistics_may_be_private():
    mine = run(norm=True, buffers="private")
    own = ~mine.method.mixtures.buffers
    for i in range(4):
        assert torch.equal(mine.log[3].after_agg[i].buffers[own], mine.log[3].after_fit[i].buffers[own])
    assert mine.method.global_model(mine.server, mine.initial) is None


def test_the_global_model_is_at_the_middle():
    mine = run(norm=True)
    found = mine.method.global_model(mine.server, mine.initial)
    assert torch.equal(found.params, mine.server.params)
    assert close(coordinates(mine, found), THIRDS)
    assert torch.equal(found.buffers[~mine.method.mixtures.buffers], mine.server.buffers)


def test_more_endpoints_than_clients_are_refused():
    with pytest.raises(ConfigError, match="take at most 4"):
        run(endpoints=5, rounds=0)
    run(endpoints=5, tau=None, rounds=0)
    run(endpoints=4, rounds=0)


def test_a_projection_that_never_comes_is_warned_of_and_not_made():
    for tau, warned in ((9, False), (10, True), (None, False)):
        assert bool(list(run(tau=tau, rounds=0).method.check())) == warned
    late = run(tau=4, rounds=0)
    late.method.context = replace(late.method.context, planned_rounds=4)
    late.server.round = 4
    assert late.method.question(late.server) is None


def test_bytes():
    mine = run(norm=True, tau=3)
    size = 4 * (len(mine.server.params) + 10)
    assert len(mine.server.params) == Learner(Mlp(norm=True), mine.train).layout.size + 2 * 20
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in mine.log)
    mine.server.centres, mine.server.round = None, 3
    question = mine.method.question(mine.server)
    assert question.nbytes == size + 4 * 3
    assert mine.method.answer(mine.client(0, 3)).nbytes == 4 * 3 * 20


def test_traces_are_the_centres():
    mine = run()
    assert not any(name.startswith("mixture") for _, name in mine.log[1].traces)
    assert [mine.log[3].traces[1, f"mixture/{m}"] for m in (1, 2, 3)] == mine.server.centres[1].tolist()


def test_the_private_mixture_of_a_newcomer_starts_at_the_shared_one_in_the_middle():
    run = Simulation("floco", blobs([9, 17]), endpoints=2, tau=None, personal_epochs=3).run(1)
    joined = run.joined(blobs([5])[0], 0)
    assert torch.equal(joined.params, run.server.params)
    assert set(joined.buffers.tolist()) == {0.5}
    assert not torch.equal(run.joined(blobs([5])[0], 1).params, joined.params)
