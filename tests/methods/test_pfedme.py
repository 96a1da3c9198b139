"""pfedme: what the specification promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.aggregation.means import mean
from fedbench.aggregation.rules.median import Median
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods.messages import Upload
from fedbench.runtime.warnings import config_warnings
from tests.methods.simulator import Mlp, Quadratic, Simulation, accuracy_of, assert_same, blobs, close, equal, targets
from tests.runtime.rounds import small

SIZES = [9, 17, 12]
DOUBLE = {"precision": "64-true"}
BOWL = {"lam": 2.0, "inner_steps": 2, "personal_lr": 0.1}


def run(name="pfedme", rounds=3, norm=False, sizes=SIZES, **options) -> Simulation:
    fixed = {k: options.pop(k) for k in ("draw", "train") if k in options}
    return Simulation(name, blobs(sizes), module=Mlp(norm), **fixed, **options).run(rounds)


def bowl(steps: int, lr=0.25, **options) -> Simulation:
    """One client on half the sum of a (theta - b)^2 with a = (1, 2), b = (1, -1), from 0."""
    train = {**DOUBLE, "lr": lr, "batch_size": "full", "steps": steps}
    module = Quadratic((0.0, 0.0), (1.0, 2.0))
    return Simulation("pfedme", targets((1.0, -1.0)), module=module, train=train, **{**BOWL, **options}).run(1)


@pytest.mark.parametrize(
    ("start", "steps", "theta", "w"),
    [
        ("warm", 1, [0.17, -0.32], [0.085, -0.16]),
        ("warm", 2, [0.2822, -0.4864], [0.1836, -0.3232]),
        ("centre", 1, [0.17, -0.32], [0.085, -0.16]),
        ("centre", 2, [0.24055, -0.4288], [0.162775, -0.2944]),
    ],
)
def test_local_rounds(start, steps, theta, w):
    mine = bowl(steps, inner_start=start)
    assert close(mine.log[0].after_fit[0].params, theta)
    assert close(mine.log[0].uploads[0].params, w)
    assert close(mine.server.params, w)


def test_many_inner_steps_reach_the_proximal_point():
    assert close(bowl(1, inner_steps=300).log[0].after_fit[0].params, [0.333333, -0.5])


def test_decay_of_theta():
    theta = bowl(1, inner_steps=1, lam=0, inner_weight_decay=0.5).log[0].after_fit[0].params
    assert close(theta, [0.1, -0.2])
    theta = bowl(1, inner_steps=2, lam=0, inner_weight_decay=0.5).log[0].after_fit[0].params
    assert close(theta, [0.1 + 0.1 * (0.9 - 0.05), -0.2 + 0.1 * (-1.6 + 0.1)])


def test_rates_decay_with_the_round():
    train = {"lr_decay": 0.5, "lr": 0.25, **DOUBLE, "batch_size": "full", "steps": 1}
    module = Quadratic((0.0, 0.0), (1.0, 2.0))
    mine = Simulation("pfedme", targets((1.0, -1.0)), module=module, train=train, **{**BOWL, "inner_steps": 1}).run(2)
    w = torch.tensor([0.05, -0.1]).double()
    assert close(mine.log[0].uploads[0].params, w.tolist())
    theta = w - 0.05 * torch.tensor([1.0, 2.0]) * (w - torch.tensor([1.0, -1.0]))
    assert close(mine.log[1].after_fit[0].params, theta.tolist())
    assert close(mine.server.params, (w - 0.25 * (w - theta)).tolist())


numbers = st.floats(-5, 5, allow_subnormal=False)
vectors = st.tuples(numbers, numbers, numbers)


@given(vectors, vectors, st.floats(0.01, 1), st.floats(0.1, 5), st.sampled_from(["warm", "centre"]))
@settings(max_examples=50)
def test_w_goes_towards_theta_and_not_beyond(point, before, pull, lam, start):
    train = {**DOUBLE, "lr": pull / lam, "batch_size": "full", "steps": 1}
    module = Quadratic(before, (1.0, 1.0, 1.0))
    options = dict(lam=lam, inner_steps=3, personal_lr=0.1, inner_start=start)
    mine = Simulation("pfedme", targets(point), module=module, train=train, **options).run(1)
    w, theta, before = mine.server.params, mine.log[0].after_fit[0].params, mine.initial.params
    assert torch.allclose(theta - w, (before - theta) * (pull - 1), rtol=0, atol=1e-12)
    low, high = torch.minimum(before, theta), torch.maximum(before, theta)
    assert ((w >= low - 1e-12) & (w <= high + 1e-12)).all()


def test_a_larger_lam_keeps_theta_nearer():
    way = [bowl(1, lr=1e-9, lam=lam, inner_steps=400).log[0].after_fit[0].params.norm() for lam in (0.0, 1.0, 3.0, 9.0)]
    assert way == sorted(way, reverse=True)
    assert way[0] > 2 * way[-1]


def test_all_inner_steps_take_the_same_batch_and_count():
    mine = run(rounds=0, inner_steps=4, train={"batch_size": 4, "epochs": 3})
    mine.server.round, mine.server.participants = 1, [0]
    seen: list[list[int]] = []
    client = mine.client(0, 1)
    batch = type(client.train).batch
    try:
        type(client.train).batch = lambda self, index: seen.append(index.tolist()) or batch(self, index)
        mine.learner.ledger.clear()
        mine.method.train(client, mine.initial)
    finally:
        type(client.train).batch = batch
    assert [len(index) for index in seen] == [4, 4, 1] * 3
    assert mine.learner.ledger.steps == 36


@pytest.mark.parametrize(("beta", "expected"), [(0.5, [1, 2]), (1, [1, 3]), (2, [1, 5])])
def test_the_server_goes_towards_the_mean(beta, expected):
    mine = run(rounds=0, beta=beta)
    none = torch.zeros(0)
    mine.server.params, mine.server.buffers = torch.ones(2), torch.tensor([7.0])
    uploads = [
        Upload(i, n, params=torch.tensor(p), buffers=torch.tensor(b), counters=none.long())
        for i, (p, b, n) in enumerate([([0.0, 2.0], [1.0], 5), ([2.0, 4.0], [2.0], 50)])
    ]
    mine.method.aggregate(mine.server, uploads)
    assert mine.server.params.tolist() == expected
    assert mine.server.buffers.tolist() == [1.5]


def test_beta_1_is_the_plain_mean():
    mine = run(norm=True)
    assert torch.equal(mine.server.params, mean([u.params for u in mine.log[-1].uploads.values()]))
    assert torch.equal(mine.server.buffers, mean([u.buffers for u in mine.log[-1].uploads.values()]))


def test_weights_by_images():
    mine = run(rounds=1, weighting="samples")
    uploads = mine.log[0].uploads
    expected = sum(n * uploads[i].params.double() for i, n in enumerate(SIZES)) / sum(SIZES)
    assert torch.allclose(mine.server.params.double(), expected, rtol=0, atol=1e-7)
    assert not torch.allclose(mine.server.params, run(rounds=1).server.params, rtol=0, atol=1e-7)


def test_one_inner_step_from_the_centre_is_fedavg():
    plain = {"momentum": 0, "weight_decay": 0, **DOUBLE}
    mine = run(
        train={**plain, "lr": 0.2}, lam=5.0, personal_lr=0.1, inner_steps=1, inner_start="centre", weighting="samples"
    )
    other = run("fedavg", train={**plain, "lr": 0.1})
    assert torch.allclose(mine.server.params, other.server.params, rtol=0, atol=1e-12)


def test_without_lam_w_stays_and_theta_is_local_training():
    train = {"momentum": 0, "weight_decay": 0, "lr": 0.1}
    mine = run(rounds=2, norm=True, lam=0, inner_steps=1, personal_lr=0.1, train=train)
    alone = run("local", rounds=1, norm=True, train=train)
    assert torch.equal(mine.server.params, mine.initial.params)
    for i in range(3):
        theta, local = mine.log[0].after_fit[i], alone.log[0].after_fit[i]
        assert torch.allclose(theta.params, local.params, rtol=0, atol=1e-6)
        assert torch.allclose(theta.buffers, local.buffers, rtol=0, atol=1e-6)
        assert torch.equal(theta.counters, local.counters)


def test_theta_is_evaluated_and_w_is_sent():
    mine = run(norm=True, draw=lambda t: [0, 1] if t < 3 else [1, 2])
    for seen in mine.log:
        for i, theta in seen.after_fit.items():
            assert equal(theta, seen.after_agg[i])
            assert not torch.equal(theta.params, seen.uploads[i].params)
            assert torch.equal(theta.buffers, seen.uploads[i].buffers)
    assert equal(mine.log[2].after_agg[0], mine.log[1].after_fit[0])
    assert equal(mine.log[0].after_agg[2], mine.initial)
    whole = mine.method.global_model(mine.server, mine.initial)
    assert torch.equal(whole.params, mine.server.params)


def test_a_round_starts_from_the_received_model_alone():
    mine = run(rounds=2)
    changed = run(rounds=1)
    for i, state in changed.states.items():
        changed.keep(i, theta=state.theta.replace(params=state.theta.params + 1))
    changed.round()
    assert all(equal(mine.log[1].after_fit[i], changed.log[1].after_fit[i]) for i in range(3))


def test_statistics_follow_every_pass_of_theta():
    mine = run(norm=True, rounds=1, sizes=[16], inner_steps=3, train={"batch_size": 8, "epochs": 2})
    assert mine.log[0].after_fit[0].counters.tolist() == [12]


def test_private_statistics():
    mine = run(norm=True, buffers="private")
    assert all(seen.up[0] == seen.down[0] == 4 * 69 for seen in mine.log)
    assert mine.method.global_model(mine.server, mine.initial) is None
    received = mine.method.receive(mine.client(0, 3))
    assert torch.equal(received.buffers, mine.log[-1].after_fit[0].buffers)


def test_everybody_trains_and_the_drawn_upload():
    draw = lambda t: [0, 2] if t % 2 else [1]  # noqa: E731
    some, all_of_them = (run(norm=True, draw=draw, update_all=x) for x in (False, True))
    for t, (a, b) in enumerate(zip(some.log, all_of_them.log, strict=True), 1):
        assert sorted(b.after_fit) == [0, 1, 2]
        assert all(equal(a.after_fit[i], b.after_fit[i]) for i in draw(t))
        full = 4 * 79
        assert b.down == dict.fromkeys(range(3), full)
        assert b.up == {i: full if i in draw(t) else 0 for i in range(3)}
    assert torch.equal(some.server.params, all_of_them.server.params)
    assert not equal(some.log[-1].after_agg[1], all_of_them.log[-1].after_agg[1])


def test_bytes():
    for seen in run(rounds=2, norm=True).log:
        assert set(seen.up.values()) == set(seen.down.values()) == {4 * 79}


def test_the_optimiser_has_no_part_and_that_is_said():
    plain, odd = run(), run(train={"momentum": 0.9, "weight_decay": 0.1, "keep_optimizer": True})
    assert_same(plain, odd)
    assert config_warnings(resolve(small("pfedme")).config) == []
    asked = resolve(small("pfedme", train={"momentum": 0.9, "weight_decay": 0.1, "keep_optimizer": True})).config
    assert config_warnings(asked) == [
        "train.momentum = 0.9, train.weight_decay = 0.1, train.keep_optimizer = True: without effect: "
        "pfedme makes plain steps of its own"
    ]


def test_rates_that_diverge_are_said():
    said = lambda **options: list(run(rounds=0, **options).method.check())  # noqa: E731
    assert "theta diverges" in said(personal_lr=0.2, lam=10)[0]
    assert said(personal_lr=0.19, lam=10) == []
    assert "overshoots" in said(train={"lr": 0.2}, lam=6)[0]


def test_defaults():
    config = resolve(small("pfedme", train={})).config
    assert (config.train.lr, config.train.momentum, config.train.weight_decay) == (0.005, 0, 0)
    assert resolve(small("pfedme", train={"lr": 0.1})).config.train.lr == 0.1


@pytest.mark.parametrize(
    "option", [{"lam": -1}, {"inner_steps": 0}, {"personal_lr": 0}, {"beta": 0}, {"inner_weight_decay": -0.1}]
)
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ConfigError, match=f"method.{next(iter(option))}"):
        resolve(small("pfedme", **{f"method__{key}": value for key, value in option.items()}))


def test_the_other_engine_is_refused():
    with pytest.raises(ConfigError, match="steps of its own"):
        check_run(resolve(small("pfedme", train__engine="trainer")))


def test_theta_is_better_than_w_where_labels_are_skewed():
    clients = blobs([40] * 2, seed=3) + blobs([40] * 2, seed=4, shift=1)
    mine = Simulation("pfedme", clients, train={"lr": 0.05}, personal_lr=0.05).run(8)
    w = mine.method.global_model(mine.server, mine.initial)
    for i in range(4):
        assert accuracy_of(mine.learner, mine.log[-1].after_agg[i], mine.data[i]) > accuracy_of(
            mine.learner, w, mine.data[i]
        )


def test_an_aggregator_needs_a_server_that_goes_all_the_way():
    found = {"aggregator": Median(name="median"), "module": Mlp()}
    with pytest.raises(ConfigError, match=r"method\.beta = 0.5: .* for aggregator median set it to 1"):
        Simulation("pfedme", blobs([8] * 3), beta=0.5, **found)
    Simulation("pfedme", blobs([8] * 3), **found).round()


def test_theta_of_a_newcomer_starts_at_w():
    run = Simulation("pfedme", blobs([9, 17])).run(1)
    assert torch.equal(run.joined(blobs([5])[0], 0).params, run.server.params)
    assert not torch.equal(run.joined(blobs([5])[0], 1).params, run.server.params)
