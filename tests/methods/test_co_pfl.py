"""co-pfl: what the specification promises."""

from contextlib import contextmanager
from math import ceil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.aggregation.packed import bits_to_mask, mask_to_bits
from fedbench.aggregation.ranks import floored_share
from fedbench.config import MethodConfig, TrainConfig
from fedbench.errors import ConfigError
from fedbench.methods import checked_options, full_key
from fedbench.methods.client import Client
from fedbench.methods.co_pfl import READINGS, CoPFL
from fedbench.methods.messages import Upload
from fedbench.methods.server import Context
from fedbench.module.layout import Layout, Slot
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Quadratic, Simulation, assert_same, blobs, close, targets

SIZES = [9, 17, 12]
FEW = {"personalization_rate": 0.05, "personalization_budget": 0.2}
"""A selection that leaves something to share."""


def bits(text: str) -> torch.Tensor:
    return torch.tensor([c == "1" for c in text])


def text(mask: torch.Tensor) -> str:
    return "".join(str(int(m)) for m in mask)


def method(size=8, clients=3, **options) -> CoPFL:
    """On a model that is one vector."""
    layout = Layout((Slot("layer", (size,), 0, size),), (), ())
    made = CoPFL(CoPFL.Options(**options), Context(layout, TrainConfig(), 0, 10, 2, (10,) * clients))
    list(made.check())
    return made


def run(rounds=4, norm=False, clients=SIZES, **options) -> Simulation:
    draw, train = options.pop("draw", None), {"lr": 0.01, "epochs": 2, "batch_size": 8, **options.pop("train", {})}
    simulation = Simulation("co-pfl", blobs(clients), module=Mlp(norm), draw=draw, train=train, **{**FEW, **options})
    return simulation.run(rounds)


LITERAL = READINGS["literal"]
DELTA, STEP = torch.tensor([1.0, 2, 0, -1]), torch.tensor([0.5, 1, -0.5, 0])


def test_weights_are_shares_of_the_scores_and_uniform_without_any():
    uploads = [Upload(i, 10, score=torch.tensor(s)) for i, s in enumerate((1.2, 0.8, 2.0))]
    assert close(method().weights(uploads), [0.3, 0.2, 0.5])
    assert method().weights([Upload(i, 10, score=torch.tensor(0.0)) for i in range(4)]) == [0.25] * 4


def test_in_the_first_round_every_step_is_opposed_and_losses_decide():
    seen = run(rounds=1, pred_score=False, **LITERAL).log[0]
    assert all(close(seen.traces[i, "score_gradient"], [2]) for i in range(3))
    assert all(close(seen.traces[i, "alpha"], [1 / 3], digits=12) for i in range(3))
    seen = run(rounds=1, **LITERAL).log[0]
    loss = {i: seen.traces[i, "score_prediction"] for i in range(3)}
    total = 6 + sum(loss.values())
    assert all(close(seen.traces[i, "alpha"], [(2 + loss[i]) / total], digits=9) for i in range(3))


@pytest.mark.parametrize("option", [{}, {"loo_update": "previous"}, {"loo_model": "received"}], ids=str)
def test_literal_scores_of_a_later_round(option):
    """By hand: what is taken out of the server's model and of its last step, and with which weight."""
    simulation = run(rounds=2, **{**LITERAL, **option})
    weights, sent = dict(simulation.server.alphas), {i: simulation.states[i].trained for i in range(3)}
    before, now = simulation.server.previous.double(), simulation.server.params.double()
    start, trained, held = (
        simulation.log[0].after_agg,
        simulation.log[1].after_fit,
        simulation.log[1].after_agg,
    )
    seen = simulation.round()
    for i in range(3):
        a, received = weights[i], held[i].params
        assert a == pytest.approx(simulation.log[1].traces[i, "alpha"])
        own = received if "loo_model" in option else sent[i]
        others = simulation.initial.replace(params=((now - a * own.double()) / (1 - a)).float())
        loss = simulation.learner.loss(others, simulation.client(i, 3).train)
        assert close(seen.traces[i, "score_prediction"], [loss], digits=5)
        delta = (received - seen.after_fit[i].params).double()
        update = (start[i].params - trained[i].params).double() if "loo_update" in option else delta
        rest = ((before - now) - a * update) / (1 - a)
        score = 1 - float(delta @ rest) / float(delta.norm() * rest.norm())
        assert close(seen.traces[i, "score_gradient"], [score], digits=5)


WORKING = {"server_rule": "per_index", "merge_mask": "client", "loo_update": "same_round"}


def test_the_working_reading_is_the_default():
    options = CoPFL.Options()
    assert READINGS["working"] == WORKING == {key: getattr(options, key) for key in WORKING}


def leave_out_models(simulation: Simulation) -> list[torch.Tensor]:
    """What the others sent to the last mean, by hand: for each client the model without it, float64 `[N]`."""
    uploads = simulation.log[-1].uploads
    alphas = simulation.server.alphas
    sent = {i: ~bits_to_mask(u.mask, simulation.context.layout.size) for i, u in uploads.items()}
    found = []
    for i in uploads:
        others = [j for j in uploads if j != i]
        weight = sum(alphas[j] * sent[j].double() for j in others)
        total = sum(alphas[j] * (uploads[j].params.double() * sent[j]) for j in others)
        found.append(torch.where((weight > 0) & sent[i], total / weight, simulation.server.params.double()))
    return found


def test_a_client_is_taken_out_of_the_mean_where_it_is_in_it():
    """The model of the prediction score is the mean of what the others sent."""
    simulation = run(rounds=3, grad_score=False, personalization_rate=0.25, personalization_budget=0.5)
    expected = leave_out_models(simulation)
    seen = simulation.round()
    for i, others in enumerate(expected):
        model = simulation.initial.replace(params=others.float())
        loss = simulation.learner.loss(model, simulation.client(i, 4).train)
        assert close(seen.traces[i, "score_prediction"], [loss], digits=4)


def test_the_model_without_a_client_of_a_mean_over_some():
    """By hand, with alpha (.5, .3, .2); entry 0 is personal for client 0, entry 2 for the others."""
    server, held = served(grad_score=False)
    assert close(server.params, [6.6, 4.8, 3, 6.8])
    assert close(server.sharers, [0.5, 1, 0.5, 1])
    expected = [[6.6, 7.6, 3, 9.6], [9, 30 / 7, 3, 44 / 7], [5, 3.5, 3, 5.5]]
    for i, others in enumerate(expected):
        state = CoPFL.State(trained=torch.tensor(MODELS[i]), mask=bits(MASKS[i]))
        message = method(4).send(server, i)
        client = Client(i, 10, *[None] * 3, held[i], 0, 1, state, message)  # type: ignore[arg-type]
        assert close(method(4)._others(client, held[i]), others)


def test_who_sat_the_last_mean_out_is_in_nothing():
    simulation = run(rounds=2, draw=lambda t: [0, 1] if t == 2 else [0, 1, 2], grad_score=False)
    model = simulation.initial.replace(params=simulation.server.params)
    loss = simulation.learner.loss(model, simulation.client(2, 3).train)
    assert close(simulation.round().traces[2, "score_prediction"], [loss], digits=5)


def test_the_prediction_score_may_be_taken_on_images_that_are_held_out():
    simulation = run(rounds=2, score_data="held_out", grad_score=False)
    expected = leave_out_models(simulation)
    seen = simulation.round()
    for i, others in enumerate(expected):
        client = simulation.client(i, 3)
        kept, held = client.split(0.2, "validation")
        assert len(held) == round(0.2 * SIZES[i])
        model = simulation.initial.replace(params=others.float())
        assert close(seen.traces[i, "score_prediction"], [simulation.learner.loss(model, held)], digits=4)
        phases = 2
        assert seen.steps[i] == phases * 2 * ceil(len(kept) / 8)
    options = CoPFL.Options(score_data="held_out")
    assert [CoPFL.steps(options, simulation.learner.train, size, 0) for size in SIZES] == list(seen.steps.values())
    with pytest.raises(ConfigError, match=r"method\.score_data = held_out: only the prediction score uses it"):
        run(rounds=0, score_data="held_out", pred_score=False)


def test_a_client_of_one_image_holds_none_out():
    assert run(rounds=2, score_data="held_out", clients=[1, 9]).log[1].steps == {0: 4, 1: 4}


@pytest.mark.parametrize("merge_mask", ["client", "server"])
def test_the_server_scores_updates_of_the_same_round(merge_mask):
    """By hand, from what the clients trained: nothing that was not sent takes part, and nothing else travels."""
    draw = lambda t: [0, 1] if t == 2 else [0, 1, 2]  # noqa: E731
    mine = run(rounds=2, draw=draw, **{**WORKING, "merge_mask": merge_mask})
    literal = run(rounds=3, draw=draw, **LITERAL)
    server, frozen = mine.server.params, bits_to_mask(mine.server.mask, 59)
    seen = mine.round()
    sent = {i: ~mine.states[i].mask & ~(frozen & (merge_mask == "server")) for i in range(3)}
    updates = {i: (server.double() - seen.after_fit[i].params) * sent[i] for i in range(3)}
    for i in range(3):
        others = [j for j in range(3) if j != i]
        number = sum(sent[j].double() for j in others).clamp(min=1)
        mean = sum(updates[j] for j in others) / number * sent[i]
        score = 1 - float(updates[i] @ mean) / float(updates[i].norm() * mean.norm())
        assert seen.traces[i, "score_gradient"] == pytest.approx(score, abs=1e-9)
        assert seen.uploads[i].score == seen.traces[i, "score_prediction"]
        assert "previous" not in mine.message(i)
    total = sum(seen.traces[i, f"score_{kind}"] for i in range(3) for kind in ("gradient", "prediction"))
    alpha = (seen.traces[1, "score_gradient"] + seen.traces[1, "score_prediction"]) / total
    assert seen.traces[1, "alpha"] == pytest.approx(alpha)
    size = mine.context.layout.size
    assert all(seen.up[i] == 4 * int((~mine.states[i].mask).sum()) + ceil(size / 8) + 4 for i in range(3))
    assert set(seen.down.values()) == {(4 + 4) * size + ceil(size / 8) + 4}
    unscored = run(rounds=3, draw=draw, pred_score=False, **{**WORKING, "merge_mask": merge_mask})
    assert set(unscored.log[2].down.values()) == {4 * size + ceil(size / 8) + 4}
    assert literal.log[2].down[2] == unscored.log[2].down[2] + 4 * size, "who missed a step needs none"


def test_a_score_that_no_client_makes_does_not_travel():
    scored, unscored = (run(rounds=1, pred_score=False, **more).log[0] for more in ({"loo_update": "current"}, {}))
    assert [scored.up[i] - unscored.up[i] for i in range(3)] == [4] * 3


def test_the_only_participant_of_a_round_is_compared_with_nobody():
    seen = run(rounds=2, draw=lambda t: [1]).log[1]
    assert seen.traces[1, "alpha"] == 1
    assert seen.traces[1, "score_gradient"] == 1
    alone = run(rounds=1, draw=lambda t: [1])
    loss = alone.learner.loss(alone.initial.replace(params=alone.server.params), alone.client(1, 2).train)
    assert close(seen.traces[1, "score_prediction"], [loss], digits=5)


def test_the_prediction_score_sees_the_statistics_after_training():
    simulation = run(rounds=1, norm=True, grad_score=False)
    fitted = simulation.log[0].after_fit[0]
    others = fitted.replace(params=simulation.initial.params)
    loss = simulation.learner.loss(others, simulation.client(0, 1).train)
    assert close(simulation.log[0].traces[0, "score_prediction"], [loss], digits=5)
    assert (0, "score_gradient") not in simulation.log[0].traces


CHANGE = torch.tensor([0.3, -0.5, 0.1, 0.5, 0, -0.5, 0.2, 0.05]).abs()


@pytest.mark.parametrize(
    ("mask", "p", "gamma", "select_from", "grown"),
    [
        ("00000000", 0.25, 0.5, "all", "01010000"),
        ("00000000", 0.375, 0.25, "all", "01010000"),
        ("00000000", 0.5, 0.5, "all", "11010100"),
        ("00000000", 0.1, 0.5, "all", "00000000"),
        ("01010000", 0.25, 0.5, "all", "01010000"),
        ("01010000", 0.5, 0.5, "all", "11010100"),
        ("01010000", 0.5, 0.375, "all", "01010100"),
        ("01010000", 0.25, 0.5, "unmasked", "11010100"),
    ],
)
def test_masks_grow_by_the_largest_changes(mask, p, gamma, select_from, grown):
    made = method(personalization_rate=p, personalization_budget=gamma, select_from=select_from)
    assert text(made.grow_mask(bits(mask), CHANGE)) == grown


def test_shares_are_floored():
    assert floored_share(0.29, 100) == 29
    assert floored_share(0.999, 100) == 99


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["all", "unmasked"]),
    st.integers(0, 99),
)
def test_masks_only_grow_and_keep_to_the_budget(changes, p, gamma, select_from, seed):
    made = method(len(changes), personalization_rate=p, personalization_budget=gamma, select_from=select_from)
    order = torch.randperm(len(changes), generator=torch.Generator().manual_seed(seed))
    mask = torch.zeros(len(changes), dtype=torch.bool)
    for shift in range(3):
        grown = made.grow_mask(mask, torch.tensor(changes, dtype=torch.float32)[order].roll(shift))
        assert (grown >= mask).all()
        assert grown.sum() <= floored_share(gamma, len(changes))
        assert grown.sum() - mask.sum() <= floored_share(p, len(changes))
        mask = grown


def mamo(**options) -> Simulation:
    """Gradient (w1, 2 w2, -w3), two steps a phase from w = (1, 1, 1)."""
    module = Quadratic(start=(1.0, 1.0, 1.0), curvature=(1.0, 2.0, -1.0))
    train = {"lr": 0.1, "steps": 2, "batch_size": 1, "precision": "64-true", **options.pop("train", {})}
    settings = {"personalization_rate": 0.0, "grad_score": False, "pred_score": False, **options}
    return Simulation("co-pfl", targets((0.0, 0.0, 0.0)), module=module, train=train, **settings)


def set_state(simulation: Simulation, **fields) -> None:
    """Some fields of the first client's private state; the others stay."""
    simulation.keep(0, **{**vars(simulation.states[0]), **fields})


def test_two_rounds_of_mask_aware_moments():
    simulation = mamo().run(1)
    held = simulation.states[0].moments
    assert close(simulation.log[0].after_fit[0].params, [0.800412, 0.800412, 1.200135])
    assert close(held["shared"]["u"], [0.18, 0.36, -0.2])
    assert close(held["shared"]["v"], [0.001809, 0.007236, 0.002209])
    assert not held["personal"]["u"].any()
    assert (held["personal"]["steps"], held["shared"]["steps"]) == (2, 2)
    set_state(simulation, mask=bits("010"))
    fitted = simulation.round().after_fit[0].params
    held = simulation.states[0].moments
    assert close(fitted, [0.603939, 0.658673, 1.401147])
    assert close(held["personal"]["u"], [0, 0.291380, 0])
    assert close(held["personal"]["v"], [0, 0.00472999, 0], digits=8)
    assert close(held["shared"]["u"], [0.287996, 0.291600, -0.400061])
    assert close(held["shared"]["v"], [0.00293763, 0.00722154, 0.00533474], digits=8)
    assert (held["personal"]["steps"], held["shared"]["steps"]) == (4, 4)


def adam(w, q, u, v, steps, h, entering, lr=0.1):
    """Two steps of eq. 4 and 5, in plain Python."""
    for t in range(steps + 1, steps + 3):
        g = [entering[i] * q[i] * w[i] for i in range(3)]
        u = [0.9 * u[i] + 0.1 * g[i] for i in range(3)]
        v = [0.999 * v[i] + 0.001 * g[i] ** 2 for i in range(3)]
        step = [u[i] / (1 - 0.9**t) / ((v[i] / (1 - 0.999**t)) ** 0.5 + 1e-8) for i in range(3)]
        w = [w[i] - lr * h[i] * step[i] for i in range(3)]
    return w, u, v


def test_shared_moments_enter_unmasked_and_both_phases_run():
    simulation = mamo(moments="shared").run(1)
    q, ones, none = (1.0, 2.0, -1.0), (1.0,) * 3, (0.0,) * 3
    _, u, v = adam([1.0] * 3, q, [0.0] * 3, [0.0] * 3, 0, none, ones)
    w, u, v = adam([1.0] * 3, q, u, v, 2, ones, ones)
    pair = simulation.states[0].moments["both"]
    assert close(simulation.log[0].after_fit[0].params, w, digits=9)
    assert close(pair["u"], u, digits=9)
    assert close(pair["v"], v, digits=9)
    assert pair["steps"] == 4


def test_without_moments_a_step_is_the_masked_gradient():
    simulation = mamo(moments="none")
    simulation.keep(0, mask=bits("010"), trained=simulation.initial.params)
    assert close(simulation.round().after_fit[0].params, [0.81, 0.64, 1.21])
    assert not simulation.states[0].moments


def test_weight_decay_enters_the_gradient_and_is_masked():
    simulation = mamo(moments="none", train={"weight_decay": 0.5, "steps": 1})
    assert close(simulation.round().after_fit[0].params, [0.85, 0.75, 1.05])
    calls = spied(simulation)
    set_state(simulation, mask=bits("010"))
    simulation.round()
    personal, shared = calls["personal"], calls["shared"]
    assert torch.equal(personal[0][[0, 2]], personal[1][[0, 2]])
    assert torch.equal(shared[0][1], shared[1][1])


def spied(simulation: Simulation) -> dict:
    """Start and end of every fit from now on, by phase."""
    calls, learner = {}, simulation.learner
    fit, training = learner.fit, learner.training

    def note(asked, end):
        calls[asked.stream] = (asked.start.params.clone(), end.params.clone())
        return end

    @contextmanager
    def watched(asked):
        with training(asked) as steps:
            yield steps
        note(asked, steps.weights)

    learner.fit, learner.training = lambda asked: note(asked, fit(asked)), watched
    return calls


@pytest.mark.parametrize("coupling", ["parallel", "sequential"])
@pytest.mark.parametrize("moments", ["mask_aware", "shared", "none"])
def test_a_phase_moves_its_own_part_only(moments, coupling):
    simulation = run(rounds=2, moments=moments, phase_coupling=coupling)
    received = simulation.log[1].after_agg[0].params
    mask = simulation.states[0].mask
    assert 0 < mask.sum() < len(mask)
    simulation.draw = lambda t: [0]
    calls = spied(simulation)
    trained = simulation.round().after_fit[0].params
    (first, personal), (second, shared) = calls["personal"], calls["shared"]
    assert torch.equal(first, received)
    assert torch.equal(second, received if coupling == "parallel" else personal)
    assert torch.equal(personal[~mask], received[~mask])
    assert torch.equal(shared[mask], second[mask])
    assert (personal != received)[mask].any()
    assert torch.equal(trained, torch.where(mask, personal, shared))


def test_both_phases_move_the_running_statistics_and_an_empty_one_does_not():
    simulation = run(rounds=2, norm=True, clients=[16], train={"batch_size": 8})
    assert simulation.log[0].after_fit[0].counters.tolist() == [4]
    assert simulation.log[1].after_fit[0].counters.tolist() == [12]
    assert torch.equal(simulation.log[1].after_agg[0].buffers, simulation.log[1].after_fit[0].buffers)


def test_moments_and_counters_may_start_anew_every_round():
    simulation = run(rounds=1, keep_moments=False)
    assert not simulation.states[0].moments
    kept = run(rounds=3)
    assert kept.states[0].moments["shared"]["steps"] == 3 * 2 * ceil(9 / 8)
    assert simulation.run(2).log[2].after_fit[0].params.ne(kept.log[2].after_fit[0].params).any()
    assert torch.equal(simulation.log[0].after_fit[0].params, kept.log[0].after_fit[0].params)


def test_the_runs_momentum_and_optimizer_have_no_effect_and_it_says_so():
    plain = run(rounds=2)
    assert not list(plain.method.check())
    for train in ({"momentum": 0.9}, {"keep_optimizer": True}, {"optimizer": "adam"}):
        (line,) = run(rounds=0, train=train).method.check()
        assert "have no effect" in line
    assert_same(plain, run(rounds=2, train={"momentum": 0.9, "keep_optimizer": True, "optimizer": "adam"}))


MODELS = [[1.0, 2, 3, 4], [5.0, 6, 7, 8], [9.0, 10, 11, 12]]
MASKS = ["1000", "0010", "0010"]


def served(**options) -> tuple[CoPFL.Server, list[Weights]]:
    """One aggregation, and what the clients then hold."""
    made = method(4, **options)
    nothing, none = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    initial = Weights(torch.tensor([-1.0, -2, -3, -4]), nothing, none)
    server = made.start(initial)
    server.round, server.participants = 1, [0, 1, 2]
    uploads = [
        Upload(
            i,
            10,
            params=torch.tensor(w).masked_fill(bits(m), 0),
            buffers=nothing,
            counters=none,
            mask=mask_to_bits(bits(m)),
            score=torch.tensor(s, dtype=torch.float64),
        )
        for i, (w, m, s) in enumerate(zip(MODELS, MASKS, (0.5, 0.3, 0.2), strict=True))
    ]
    made.aggregate(server, uploads)
    held = []
    for i in range(3):
        state, message = CoPFL.State(trained=torch.tensor(MODELS[i]), mask=bits(MASKS[i])), made.send(server, i)
        held.append(made.receive(Client(i, 10, *[None] * 3, initial, 0, 1, state, message)))  # type: ignore[arg-type]
    return server, held


def test_the_server_moves_what_nobody_holds_personal():
    server, held = served(**LITERAL)
    assert text(bits_to_mask(server.mask, 4)) == "1010"
    assert close(server.params, [-1, 4.8, -3, 6.8])
    assert close(server.previous - server.params, [0, -6.8, 0, -10.8])
    assert close(held[0].params, [1, 4.8, 3, 6.8])
    assert close(held[1].params, [5, 4.8, 7, 6.8])
    assert close(held[2].params, [9, 4.8, 11, 6.8])
    assert server.traces[-1, "live_share"] == 0.5


def test_clients_may_merge_with_their_own_mask():
    _, held = served(**{**LITERAL, "merge_mask": "client"})
    assert close(held[0].params, [1, 4.8, -3, 6.8])
    assert close(held[1].params, [-1, 4.8, 7, 6.8])
    assert close(held[2].params, [-1, 4.8, 11, 6.8])


def test_the_server_may_average_those_who_do_not_hold_it_personal():
    server, _ = served(grad_score=False)
    assert close(server.params, [6.6, 4.8, 3, 6.8])
    assert server.traces[-1, "live_share"] == 1


def test_a_parameter_that_is_personal_for_all_stays_at_the_server():
    simulation = run(rounds=1, personalization_rate=1, personalization_budget=1, server_rule="per_index")
    assert torch.equal(simulation.server.params, simulation.initial.params)
    assert simulation.log[0].traces[-1, "live_share"] == 0


def test_a_client_that_never_trained_takes_the_servers_vector():
    simulation = run(rounds=3, draw=lambda t: [0, 1])
    assert torch.equal(simulation.log[2].after_agg[2].params, simulation.server.params)
    assert 2 not in simulation.states


def test_absent_clients_keep_what_is_theirs_and_weigh_nothing():
    simulation = run(rounds=3, draw=lambda t: [0, 1, 2] if t == 1 else [0, 1], **LITERAL)
    kept = simulation.states[2]
    assert torch.equal(kept.trained, simulation.log[0].after_fit[2].params)
    mask = bits_to_mask(simulation.server.mask, 59)
    assert (mask >= kept.mask).all()
    assert torch.equal(simulation.log[2].after_agg[2].params[mask], kept.trained[mask])
    assert float(simulation.method.send(simulation.server, 2).alpha) == 0
    assert float(simulation.method.send(simulation.server, 0).alpha) > 0


def test_invariants_of_a_run():
    draw = lambda t: [0, 1, 2] if t % 2 else [0, 2]  # noqa: E731
    simulation = run(rounds=0, norm=True, draw=draw, personalization_rate=0.02, **LITERAL)
    size, server = simulation.context.layout.size, simulation.server
    before = {i: torch.zeros(size, dtype=torch.bool) for i in range(3)}
    common, params = torch.zeros(size, dtype=torch.bool), server.params
    for _ in range(4):
        seen = simulation.round()
        now = bits_to_mask(server.mask, size)
        assert (now >= common).all()
        assert torch.equal(server.params[now], params[now])
        assert 0 < now.sum() < size
        alphas = [seen.traces[i, "alpha"] for i in seen.uploads]
        assert min(alphas) >= 0
        assert close(sum(alphas), [1], digits=12)
        for i in seen.uploads:
            assert 0 <= seen.traces[i, "score_gradient"] <= 2
            mask = simulation.states[i].mask
            assert (mask >= before[i]).all()
            assert (now >= mask).all()
            assert mask.sum() <= 0.2 * size
            assert not seen.uploads[i].params[mask].any()
            before[i] = mask
        for i in range(3):
            assert torch.equal(seen.after_agg[i].params[~now], server.params[~now])
        for i in seen.uploads:
            assert torch.equal(seen.after_agg[i].params[now], seen.after_fit[i].params[now])
            assert torch.equal(seen.after_agg[i].buffers, seen.after_fit[i].buffers)
        common, params = now, server.params


@pytest.mark.parametrize(("buffers", "sent"), [("private", 0), ("average", 1)])
def test_bytes(buffers, sent):
    simulation = run(norm=True, buffers=buffers, **LITERAL, draw=lambda t: [0, 1] if t == 2 else [0, 1, 2])
    size, statistics = simulation.context.layout.size, 4 * sent * simulation.context.layout.buffer_size
    for t, seen in enumerate(simulation.log, 1):
        for i, upload in seen.uploads.items():
            personal = int(bits_to_mask(upload.mask, size).sum())
            assert personal > 0
            assert seen.up[i] == 4 * (size - personal) + ceil(size / 8) + 4 + statistics
            newcomer = t == 3 and i == 2
            assert seen.down[i] == (8 if newcomer else 4) * size + ceil(size / 8) + 4 + statistics


def test_what_still_moves_at_the_server_is_traced_and_its_end_is_said():
    simulation = run(rounds=2, **LITERAL)
    layers = [slot.name for slot in simulation.context.layout.params]
    traces = simulation.log[1].traces
    now = bits_to_mask(simulation.server.mask, 59)
    assert traces[-1, "live_share"] == pytest.approx(1 - now.sum().item() / 59)
    assert 0.5 < traces[-1, "live_share"] < 1
    assert [name for client, name in traces if client == -1 and "/" in name] == [f"personal_share/{n}" for n in layers]
    shares = [traces[i, "personal_share"] for i in range(3)]
    layer_sizes = [slot.size for slot in simulation.context.layout.params]
    by_layer = sum(n * traces[-1, f"personal_share/{name}"] for name, n in zip(layers, layer_sizes, strict=True)) / 59
    assert close(by_layer, [sum(shares) / 3], digits=9)
    assert not simulation.recorder.warnings
    ended = run(rounds=1, personalization_rate=1, personalization_budget=1)
    assert ended.log[0].traces[-1, "live_share"] == 0
    (line,) = ended.recorder.warnings
    assert line.startswith("degenerate: less than 10% of the parameters still move")
    assert ended.log[0].traces[-1, "degenerate"] == 1


@pytest.mark.parametrize(("live", "said"), [(2, False), (1, True)])
def test_it_says_so_where_less_than_a_tenth_moves(live, said):
    made, none = method(20, **LITERAL), torch.zeros(0)
    server = made.start(Weights(torch.zeros(20), none, none.long()))
    masks = [torch.arange(20) >= live, torch.arange(20) >= live + 5]
    score = torch.tensor(1.0)
    uploads = [
        Upload(i, 1, params=torch.ones(20), buffers=none, counters=none.long(), mask=mask_to_bits(mask), score=score)
        for i, mask in enumerate(masks)
    ]
    made.aggregate(server, uploads)
    assert server.traces[-1, "live_share"] == live / 20
    assert ((-1, "degenerate") in server.traces) == said
    assert bool(server.remarks()) == said


def test_nobody_is_asked_for_a_global_model():
    simulation = run(rounds=1)
    assert simulation.method.global_model(simulation.server, simulation.initial) is None
    part = simulation.method.shared_part(simulation.server, simulation.initial)
    assert torch.equal(part.params, simulation.server.params), "which all of them receive"


def test_no_epochs_are_refused():
    with pytest.raises(ConfigError, match=r"train.epochs = 0: co-pfl trains at least 1 epoch"):
        run(rounds=0, train={"epochs": 0})


@pytest.mark.parametrize(
    "option",
    [
        {"personalization_rate": 1.1},
        {"personalization_budget": -0.1},
        {"beta1": 1.0},
        {"beta2": 1.0},
        {"eps": 0.0},
        {"moments": "adam"},
        {"weighting": "samples"},
    ],
)
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        CoPFL.Options(**option)


def test_options_go_by_the_papers_symbols_too():
    asked = checked_options(MethodConfig(name="co-pfl", p=0.1, gamma=0.3))
    assert (asked.personalization_rate, asked.personalization_budget) == (0.1, 0.3)
    assert full_key("co-pfl", "method.gamma") == "method.personalization_budget"
    assert full_key("co-pfl", "train.lr") == "train.lr"
    with pytest.raises(ConfigError, match="personalization_rate is set twice, by name and by symbol"):
        checked_options(MethodConfig(name="co-pfl", p=0.1, personalization_rate=0.2))
    with pytest.raises(ConfigError, match=r"method\.personalization_rate = 3: must be a number in \[0, 1\]"):
        checked_options(MethodConfig(name="co-pfl", p=3))
