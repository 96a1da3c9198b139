"""fedobp: what the specification promises."""

import copy
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning import LightningModule
from torch import nn

from fedbench.aggregation.means import weighted_mean
from fedbench.aggregation.ranks import above_quantile
from fedbench.engine.losses import prediction_loss
from fedbench.errors import ConfigError
from fedbench.methods.fedobp import mask_traces
from fedbench.methods.messages import Message
from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_same, blobs, close, equal, targets

LOCAL = [0.5, -0.25, 0.375, 0, 1, -0.625]
GLOBAL = [0.375, 0.25, 0.375, -0.125, 0.75, -0.375]
GRADIENT = [0.2, -0.1, 0.5, 0.3, -0.05, 0.4]
SIZES = [9, 17, 12]


class Six(LightningModule):
    """Four numbers in the body, two in the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 1, bias=False), nn.Linear(1, 2, bias=False)


def six(**options):
    return Simulation("fedobp", blobs([4]), module=Six(), **options).method


def received(made, **state):
    """What a client with the vectors of the specification receives; its data gradient is GRADIENT."""
    none, counters = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    learner = SimpleNamespace(full_gradient=lambda weights, data: torch.tensor(GRADIENT, dtype=torch.float64))
    client = SimpleNamespace(learner=learner, train=None, initial=SimpleNamespace(params=None, buffers=none))
    client.initial.counters, client.initial.params = counters, torch.zeros(6)
    client.state = made.State(local=torch.tensor(LOCAL), **state)
    client.message = Message(params=torch.tensor(GLOBAL), buffers=none, counters=counters)
    return made.receive(client)


def personal(mask) -> set[int]:
    return set(mask.nonzero().flatten().tolist())


def test_the_score_is_the_squared_distance():
    assert close(received(six()).scores, [0.015625, 0.25, 0, 0.015625, 0.0625, 0.0625])


@pytest.mark.parametrize(
    ("quantile", "inf", "linear"),
    [
        (0, {0, 1, 2, 3, 4, 5}, {0, 1, 3, 4, 5}),
        (0.25, {1, 4, 5}, {1, 4, 5}),
        (0.5, {1, 4, 5}, {1, 4, 5}),
        (0.7, {1}, {1}),
        (0.8, {1}, {1}),
        (0.9, set(), {1}),
        (1, set(), set()),
    ],
)
def test_personal_parameters_by_quantile_and_rule(quantile, inf, linear):
    for rule, expected in (("inf", inf), ("linear", linear)):
        assert personal(received(six(quantile=quantile, quantile_rule=rule)).mask) == expected


def test_the_merge():
    assert received(six(quantile=0.5)).params.tolist() == [0.375, -0.25, 0.375, -0.125, 1, -0.625]
    assert received(six(quantile=0.8)).params.tolist() == [0.375, -0.25, 0.375, -0.125, 0.75, -0.375]


def test_min_max_by_tensor_and_over_all():
    found = received(six(quantile=0.5, normalization="layer"))
    assert personal(found.mask) == {0, 1, 3}
    assert found.params.tolist() == [0.5, -0.25, 0.375, 0, 0.75, -0.375]
    assert personal(received(six(quantile=0.5, normalization="global")).mask) == {1, 4, 5}
    assert personal(received(six(quantile=0.8, normalization="layer")).mask) == {1}


def test_in_the_head_alone_equal_scores_are_both_shared():
    assert personal(received(six(quantile=0.5, scope="head")).mask) == set()
    assert personal(received(six(quantile=0, scope="head")).mask) == {4, 5}


def test_scores_with_a_gradient():
    taylor, fisher = received(six(score="taylor")), received(six(score="fisher"))
    assert close(taylor.scores, [0.025, 0.05, 0, 0.0375, 0.0125, 0.1])
    assert close(fisher.scores, [0.04, 0.01, 0.25, 0.09, 0.0025, 0.16])


def test_the_running_average_of_scores():
    before = torch.tensor([0, 0, 0.5, 0, 0, 0], dtype=torch.float64)
    found = received(six(score_ema=0.5), ema=before).scores
    assert found.tolist() == [0.0078125, 0.125, 0.25, 0.0078125, 0.03125, 0.03125]
    third = received(six(score_ema=0.75), ema=before).scores
    assert third.tolist() == [0.00390625, 0.0625, 0.375, 0.00390625, 0.015625, 0.015625]


def test_ranks_are_those_of_the_decimal():
    assert personal(above_quantile(torch.arange(1.0, 11), 0.7)) == {7, 8, 9}
    assert int(above_quantile(torch.arange(1.0, 101), 0.07).sum()) == 93


@pytest.mark.parametrize(
    ("size", "quantile", "inf", "linear"),
    [
        (878538, 0.99998, 17, 18),
        (878538, 0.99979, 184, 185),
        (878538, 0.9999, 87, 88),
        (878538, 0.7, 263561, 263562),
        (878538, 0.1, 790684, 790684),
        (924708, 0.9998, 184, 185),
        (924708, 0.99992, 73, 74),
        (608702, 0.995, 3043, 3044),
        (608702, 0.9991, 547, 548),
        (582026, 0.9998, 116, 117),
        (582026, 0.9999, 58, 59),
        (582539, 0.99995, 29, 30),
    ],
)
def test_published_counts(size, quantile, inf, linear):
    scores = torch.randperm(size).to(torch.float64)
    assert int(above_quantile(scores, quantile, "inf").sum()) == inf
    assert int(above_quantile(scores, quantile, "linear").sum()) == linear


def test_small_differences_do_not_tie():
    made = six(quantile=0.5)
    shared = SimpleNamespace(params=torch.zeros(6), buffers=torch.zeros(0))
    mine = torch.tensor([1e-30, 2e-30, 3e-30, 4e-30, 5e-30, 6e-30])
    assert personal(made.mask(made._raw_scores(None, mine, shared))) == {3, 4, 5}


quantiles = st.integers(0, 20).map(lambda k: k / 20)


@given(st.lists(st.integers(0, 6), min_size=6, max_size=6), quantiles, quantiles, st.sampled_from(["inf", "linear"]))
@settings(max_examples=60)
def test_masks(scores, low, high, rule):
    low, high = sorted([low, high])
    scores = torch.tensor(scores, dtype=torch.float64)
    few, many = (six(quantile=q, quantile_rule=rule).mask(scores) for q in (high, low))
    assert not (few & ~many).any()
    assert torch.equal(six(quantile=low, quantile_rule=rule).mask(scores * 0.125), many)
    rank = -int(-low * 6 // 1) if rule == "inf" else int(low * 5 + 1e-9) + 1
    assert int(many.sum()) <= 6 - rank


def run(name="fedobp", rounds=4, norm=False, clients=SIZES, **options) -> Simulation:
    harness = {key: options.pop(key) for key in ("draw", "train", "seed") if key in options}
    evaluate = options.pop("evaluate", True)
    return Simulation(name, blobs(clients), module=Mlp(norm), **harness, **options).run(rounds, evaluate)


def later(t):
    """Client 2 comes in round 3."""
    return [0, 1] if t < 3 else [0, 1, 2]


WITH_GRADIENTS = [{"score": "taylor"}, {"score": "fisher"}, {"score": "fisher", "fisher_estimate": "sample"}]


def test_the_gradient_score_shares_all_with_a_client_that_never_trained():
    mine = run(quantile=0, score="gradient", draw=later)
    plain = Simulation("fedavg", blobs(SIZES), draw=later)
    before = mine.log[1].after_agg[2]
    assert not equal(before, mine.initial)
    plain.server.params = before.params
    plain.record.number = 2
    assert equal(plain.round().after_fit[2], mine.log[2].after_fit[2])
    assert mine.log[2].traces[2, "personal_count"] == 0
    assert mine.log[3].traces[2, "personal_count"] == mine.context.layout.size


def test_a_single_client_just_trains_on():
    mine = run(quantile=0.5, clients=[17], norm=True, include_buffers=True)
    assert_same(mine, run("fedavg", clients=[17], norm=True))
    assert all(torch.equal(seen.after_agg[0].params, seen.after_fit[0].params) for seen in mine.log)


def test_all_parameters_are_averaged_personal_ones_too():
    mine = run(quantile=0.5, rounds=2, evaluate=False)
    for seen in mine.log:
        assert all(torch.equal(seen.uploads[i].params, seen.after_fit[i].params) for i in range(3))
    mean = weighted_mean([mine.log[1].after_fit[i].params for i in range(3)], [n / 38 for n in SIZES])
    assert torch.equal(mine.server.params, mean)


@pytest.mark.parametrize("include_buffers", [False, True])
def test_what_is_received_is_a_mixture_of_own_and_global_numbers(include_buffers):
    mine = run(quantile=0.5, norm=True, include_buffers=include_buffers, rounds=2)
    size = mine.context.layout.size
    for i in range(3):
        got, own, shared = mine.log[1].after_agg[i], mine.log[1].after_fit[i], mine.server
        mask = got.mask
        whole = mine.method.vector_of
        assert torch.equal(whole(got), torch.where(mask, whole(own), whole(shared)))
        assert 0 < int(mask.sum()) <= len(mask) // 2
        assert len(mask) == size + 10 * include_buffers
        if not include_buffers:
            assert torch.equal(got.buffers, shared.buffers)


@pytest.mark.parametrize("score", WITH_GRADIENTS)
def test_gradients_are_taken_at_the_own_model_in_evaluation_mode(score):
    mine = run(norm=True, rounds=2, include_buffers=True, **score)
    size, client = mine.context.layout.size, mine.client(1, 2)
    found = mine.log[1].after_agg[1].scores
    own, learner = mine.log[1].after_fit[1].params, mine.learner
    learner.flat.load(mine.log[1].after_agg[0].replace(params=own, buffers=mine.server.buffers))
    learner.module.eval()

    def slope(x, y):
        parts = torch.autograd.grad(prediction_loss(learner.task)(learner.module, (x, y)), learner.flat.parameters)
        return torch.cat([part.flatten() for part in parts]).double()

    x, y = client.train.x, client.train.labels
    if score["score"] == "taylor":
        expected = (slope(x, y) * (own.double() - mine.server.params.double())).abs()
    elif "fisher_estimate" in score:
        expected = torch.stack([slope(x[i : i + 1], y[i : i + 1]) for i in range(len(x))]).square().mean(0)
    else:
        expected = slope(x, y).square()
    assert torch.allclose(found[:size], expected, rtol=1e-4, atol=1e-9)
    assert not found[size:].any()


def test_the_gradient_score_is_the_movement_in_the_training_before():
    mine = run(score="gradient", quantile=0.5, rounds=2)
    moved = (mine.log[1].after_fit[0].params - mine.log[0].after_agg[0].params).abs()
    assert torch.equal(mine.log[1].after_agg[0].scores, moved.double())


def test_a_client_that_returns_has_its_old_numbers():
    mine = run(quantile=0.5, draw=lambda t: [0, 1, 2] if t == 1 else [0, 1], rounds=3)
    old, new = mine.log[0].after_fit[2].params, mine.log[2].after_agg[2]
    assert torch.equal(new.params, torch.where(new.mask, old, mine.server.params))
    scores = (old.double() - mine.server.params.double()).square()
    assert torch.equal(new.scores, scores)


def test_a_first_participation_holds_the_initial_model_or_nothing():
    init, shared = (run(quantile=0.5, draw=later, first_participation=first) for first in ("init", "global"))
    assert init.log[2].traces[2, "personal_count"] > 0
    assert shared.log[2].traces[2, "personal_count"] == 0
    assert torch.equal(shared.log[1].after_agg[2].params, before_round(shared, 3))
    kept = init.log[1].after_agg[2]
    assert torch.equal(kept.params[kept.mask], init.initial.params[kept.mask])


def before_round(simulation, t):
    """The global vector that round t starts from."""
    uploads = simulation.log[t - 2].uploads
    total = sum(u.samples for u in uploads.values())
    return weighted_mean([u.params for u in uploads.values()], [u.samples / total for u in uploads.values()])


def test_round_one_shares_everything():
    mine = run(quantile=0.5, rounds=1)
    assert all(mine.log[0].traces[i, "personal_count"] == 0 for i in range(3))


def test_the_running_average_is_stored_in_training_only():
    often = run(quantile=0.5, score_ema=0.5, draw=later)
    before = copy.deepcopy(often.states)
    first, second = often.personal(1), often.personal(1)
    assert equal(first, second)
    assert all(torch.equal(before[i].ema, often.states[i].ema) for i in range(3))
    assert not torch.equal(first.scores, often.states[1].ema)
    assert not equal(first, run(quantile=0.5, draw=later).personal(1))


def test_a_client_that_shares_all_stores_no_average():
    mine = run(quantile=0.5, score_ema=0.5, score="gradient", rounds=1)
    assert mine.states[0].ema is None
    assert mine.run(1).states[0].ema is not None


def test_bytes_are_fedavgs():
    mine = run(norm=True, rounds=2, quantile=0.5, include_buffers=True)
    size = 4 * (mine.context.layout.size + mine.context.layout.buffer_size)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in mine.log)


def test_traces_count_the_mask_that_training_started_from():
    mine = run(quantile=0.5, norm=True)
    for t in (2, 3):
        seen, mask = mine.log[t].traces, mine.log[t - 1].after_agg[1].mask
        layers = ("body.0", "body.1", "head")
        counts = {layer: seen[1, f"personal_count/{layer}"] for layer in layers}
        assert seen[1, "personal_count"] == sum(counts.values()) == int(mask.sum()) > 0
        assert counts["head"] == int(mask[mine.context.layout.mask("head")].sum())
        assert sum(seen[1, f"personal_location/{layer}"] for layer in layers) == pytest.approx(1)
        assert seen[1, "personal_share/head"] == counts["head"] / 24
        assert seen[1, "personal_share"] == sum(counts.values()) / 69
    assert all(value == 0 for (client, _), value in mine.log[0].traces.items() if client == 1)


def test_statistics_are_counted_with_their_layer():
    made = run(norm=True, rounds=1, include_buffers=True).method
    mask = torch.zeros(79, dtype=torch.bool)
    mask[-1] = mask[36] = True
    found = mask_traces(made.slots, mask)
    assert found["personal_count/body.1"] == 2
    assert found["personal_share/body.1"] == 2 / 20


def test_contradictions_are_refused():
    for options in ({"scope": "head"}, {"buffers": "private"}):
        with pytest.raises(ConfigError, match="include_buffers"):
            run(include_buffers=True, rounds=0, **options)


def test_a_quantile_that_leaves_nothing_personal_is_warned_of():
    assert "59 numbers" in next(iter(run(rounds=0).method.check()))
    for options in ({"quantile": 0.9}, {"quantile": 1}, {"quantile_rule": "linear"}):
        assert list(run(rounds=0, **options).method.check()) == []


def test_only_the_scope_of_the_head_needs_one():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("fedobp", targets(1.0), module=Quadratic(), scope="head")
    Simulation("fedobp", targets(1.0), module=Quadratic(), scope="all")
