"""feddpa: what the specification promises."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning import LightningModule
from torch import nn

from fedbench.aggregation.means import weighted_mean
from fedbench.aggregation.ranks import min_max
from fedbench.engine.losses import prediction_loss
from fedbench.errors import ConfigError
from fedbench.methods.feddpa import noise_deviation
from fedbench.methods.messages import Message, zero_bytes
from tests.methods.simulator import Mlp, Simulation, assert_same, blobs, close, equal

SIZES = [9, 17, 12]
EXACT = {"precision": "64-true", "lr": 0.1, "batch_size": 8, "epochs": 2, "momentum": 0.5}
PLAIN = {"lambda_1": 0, "lambda_2": 0}


def run(name="feddpa", rounds=3, norm=False, clients=SIZES, **options) -> Simulation:
    harness = {key: options.pop(key) for key in ("draw", "train") if key in options}
    return Simulation(name, blobs(clients), module=Mlp(norm), **harness, **options).run(rounds)


class Seven(LightningModule):
    """Tensors of four and three numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 1, bias=False), nn.Linear(1, 3, bias=False)


def personal(fisher, **options) -> set[int]:
    made = Simulation("feddpa", blobs([4]), module=Seven(), **options).method
    return set(made.mask(torch.tensor(fisher, dtype=torch.float64)).nonzero().flatten().tolist())


FISHER = [0.1, 0.5, 0.9, 0.3, 2, 2, 2]


def test_fisher_information_above_a_value():
    assert close(min_max(torch.tensor(FISHER[:4])), [0, 0.5, 1, 0.25])
    assert personal(FISHER, threshold=0.4) == {1, 2}
    assert personal([0.0, 0.5, 1, 0.25, 2, 2, 2], threshold=0.5) == {2}
    assert personal(FISHER, threshold=1) == set()
    assert personal(FISHER, threshold=0) == {1, 2, 3}
    assert personal(FISHER, threshold=-1) == set(range(7))


def test_fisher_information_above_a_quantile_of_every_tensor():
    for threshold, expected in ((0.4, {1, 2}), (0.5, {1, 2}), (0.75, {2}), (1, set())):
        assert personal(FISHER, threshold=threshold, threshold_mode="quantile") == expected
    assert personal(FISHER, threshold=0, threshold_mode="quantile") == set(range(7))


@given(st.lists(st.floats(0, 9, width=32), min_size=2, max_size=9))
def test_min_max_reaches_both_ends(values):
    z = min_max(torch.tensor(values, dtype=torch.float64))
    assert float(z.min()) == 0
    assert float(z.max()) == (1 if len(set(values)) > 1 else 0)


def update(made, delta, participants=4):
    start = torch.ones(len(delta), dtype=torch.float64)
    message = Message(params=start, participants=zero_bytes(participants))
    client = SimpleNamespace(message=message, generator=lambda stream: torch.Generator().manual_seed(0))
    return made.update(client, start + torch.tensor(delta, dtype=torch.float64))


def test_clipping():
    made = Simulation("feddpa", blobs([4]), clip=True, train=EXACT).method
    assert close(update(made, [0.5, 1, 0, -2]), [0.109109, 0.218218, 0, -0.436436])
    assert close(update(made, [0.1, 0.2, 0, -0.3]), [0.1, 0.2, 0, -0.3])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9), st.floats(1e-3, 1e3))
def test_a_clipped_update_is_within_the_bound(delta, bound):
    made = Simulation("feddpa", blobs([4]), clip=True, clipping_bound=bound, train=EXACT).method
    assert float(update(made, delta).norm()) <= bound * (1 + 1e-12)


def test_noise():
    assert noise_deviation(0.5, 1, 4) == 0.25
    made = Simulation("feddpa", blobs([4]), noise_multiplier=1.0, train=EXACT).method
    for participants, deviation in ((4, 0.25), (1, 0.5)):
        noise = update(made, [0.0] * 20_000, participants)
        assert float(noise.std()) == pytest.approx(deviation, rel=0.02)


def test_noise_is_a_clients_own_in_every_round():
    noisy, plain = (run(rounds=2, train=EXACT, noise_multiplier=n, clip=True, clipping_bound=9.0) for n in (0.5, 0))
    again = run(rounds=2, train=EXACT, noise_multiplier=0.5, clip=True, clipping_bound=9.0)
    assert_same(noisy, again)
    first = [noisy.log[0].uploads[i].params - plain.log[0].uploads[i].params for i in range(3)]
    assert all(float(n.std()) == pytest.approx(9 * 0.5 / 3**0.5, rel=0.4) for n in first)
    assert not torch.allclose(first[0], first[1])
    drawn = torch.randn(len(first[0]), dtype=torch.float64, generator=noisy.client(0, 1).generator("noise"))
    assert torch.allclose(first[0], 9 * 0.5 / 3**0.5 * drawn, atol=1e-9)
    second = noisy.log[1].uploads[0].params - (noisy.log[1].after_fit[0].params - server_before(noisy, 1))
    assert not torch.allclose(first[0], second)


def server_before(simulation, t):
    """The global vector after round t."""
    before, uploads = simulation.initial.params, simulation.log[:t]
    for seen in uploads:
        rows = [seen.uploads[i] for i in sorted(seen.uploads)]
        total = sum(u.samples for u in rows)
        before = weighted_mean([before, *(u.params for u in rows)], [1.0, *(u.samples / total for u in rows)])
    return before


def test_the_number_of_participants_is_that_of_the_round():
    runs = [run(rounds=1, noise_multiplier=1.0, train=EXACT, draw=lambda t, n=n: range(n)) for n in (1, 3)]
    quiet = run(rounds=1, train=EXACT)
    noise = [one.log[0].uploads[0].params - quiet.log[0].uploads[0].params for one in runs]
    assert torch.allclose(noise[0], noise[1] * 3**0.5, atol=1e-9)


def test_the_own_model_knows_neither_clipping_nor_noise():
    plain, private = run(rounds=1), run(rounds=1, clip=True, clipping_bound=0.01, noise_multiplier=1.0, lambda_2=0)
    exact = run(rounds=1, lambda_2=0)
    assert torch.equal(private.states[0].local, exact.states[0].local)
    assert not torch.equal(private.states[0].local, plain.states[0].local)
    assert not torch.equal(private.server.params, exact.server.params)


def test_a_huge_bound_clips_nothing():
    assert_same(run(clip=True, clipping_bound=1e6, lambda_2=0), run(clipping_bound=1e6, lambda_2=0))


def later(t):
    return [0, 1] if t < 3 else [0, 1, 2]


@pytest.mark.parametrize(
    "options", [{"threshold": 1, "lambda_2": 0}, {"threshold": 1, "threshold_mode": "quantile", "training": "joint"}]
)
def test_with_nothing_personal_it_is_fedavg(options):
    mine, plain = (
        run(name, norm=True, train=EXACT, draw=later, **o) for name, o in (("feddpa", options), ("fedavg", {}))
    )
    for one, other in zip(mine.log, plain.log, strict=True):
        for point in ("after_fit", "after_agg"):
            left, right = getattr(one, point), getattr(other, point)
            assert all(torch.allclose(left[i].params, right[i].params, rtol=0, atol=1e-12) for i in left)
            assert all(torch.allclose(left[i].buffers, right[i].buffers, rtol=0, atol=1e-12) for i in left)


@pytest.mark.parametrize("form", ["norm", "squared"])
def test_the_reference_matters_to_personal_parameters_only(form):
    for lambda_1, same in ((0, True), (0.3, False)):
        one, other = (
            run(constraint_form=form, constraint_reference=r, lambda_1=lambda_1, lambda_2=0.3, rounds=2)
            for r in ("received", "global")
        )
        assert equal(one.log[1].after_fit[1], other.log[1].after_fit[1]) == same


def test_fisher_information_is_taken_at_the_own_model_in_evaluation_mode():
    mine = run(norm=True, rounds=2, threshold=0.1)
    client, own, learner = mine.client(1, 2), mine.log[1].after_fit[1].params, mine.learner
    got, rows = mine.method.receive(client), []
    learner.flat.load(got.replace(params=own, buffers=mine.server.buffers))
    learner.module.eval()
    for i in range(17):
        loss = prediction_loss(learner.task)(learner.module, client.train.batch(torch.tensor([i])))
        rows.append(torch.cat([p.flatten() for p in torch.autograd.grad(loss, learner.flat.parameters)]).double())
    fisher = torch.stack(rows).square().mean(0)
    for slot in mine.context.layout.params:
        part = slice(slot.start, slot.stop)
        assert torch.equal(got.mask[part], min_max(fisher[part]) > 0.1), slot.name
    assert torch.equal(got.params, torch.where(got.mask, own, mine.server.params))
    assert torch.equal(got.buffers, mine.server.buffers)
    assert equal(got, mine.log[1].after_agg[1])


@pytest.mark.parametrize("options", [{}, {"constraint_form": "squared"}, {"constraint_form": "layer_norm"}])
def test_each_phase_moves_its_own_part(options):
    mine = run(rounds=1, threshold=0.1, **options)
    client = mine.client(1, 1)
    received, fits, fit = mine.method.receive(client), [], mine.learner.fit
    mask = received.mask
    mine.learner.fit = lambda asked: fits.append((asked.start, fit(asked), asked.stream)) or fits[-1][1]
    mine.method.train(client, received)
    (start, middle, first), (again, end, second) = fits
    assert start is received
    assert again is middle
    assert torch.equal(middle.params[~mask], start.params[~mask])
    assert torch.equal(end.params[mask], middle.params[mask])
    assert not torch.equal(middle.params[mask], start.params[mask])
    assert not torch.equal(end.params[~mask], middle.params[~mask])
    assert (first, second) == ("fit", "shared")


def test_steps_count_for_each_phase():
    mine = run(rounds=1, clients=[17], train={"steps": 5}, threshold=0.1)
    assert mine.learner.ledger.steps == 10
    assert run(rounds=1, clients=[17], train={"steps": 5}, training="joint").learner.ledger.steps == 5


def test_who_sits_out_keeps_its_model():
    mine = run(draw=lambda t: [0, 1, 2] if t == 1 else [0, 1], threshold=0.1)
    old, mask = mine.log[0].after_fit[2].params, mine.method.receive(mine.client(2, 3)).mask
    assert torch.equal(mine.log[2].after_agg[2].params, torch.where(mask, old, mine.server.params))


def test_updates_are_added_to_the_global_model():
    mine = run(rounds=2, train=EXACT)
    assert torch.equal(mine.server.params, server_before(mine, 2))
    for i in range(3):
        moved = mine.log[1].after_fit[i].params - server_before(mine, 1)
        assert torch.allclose(mine.log[1].uploads[i].params, moved, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("threshold", "mode"), [(-0.5, "value"), (-1, "quantile")])
def test_thresholds_below_zero_are_refused(threshold, mode):
    with pytest.raises(ConfigError, match=rf"method.threshold = {threshold}"):
        run(threshold=threshold, threshold_mode=mode, rounds=0)


def test_an_optimiser_cannot_be_kept_over_phases():
    with pytest.raises(ConfigError, match=r"train\.keep_optimizer"):
        run(train={"keep_optimizer": True}, rounds=0)
    joint = run(train={"keep_optimizer": True}, training="joint", rounds=2)
    assert not equal(joint.log[1].after_fit[0], run(training="joint", rounds=2).log[1].after_fit[0])


def test_noise_without_clipping_is_warned_of():
    assert list(run(rounds=0, noise_multiplier=1.0).method.check())
    assert not list(run(rounds=0, noise_multiplier=1.0, clip=True).method.check())
    assert not list(run(rounds=0).method.check())


def test_bytes_are_fedavgs():
    mine = run(norm=True)
    size = 4 * (mine.context.layout.size + mine.context.layout.buffer_size)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in mine.log)


def test_traces():
    mine = run(rounds=1, threshold=0.1)
    mask, seen = mine.method.receive(mine.client(1, 1)).mask, mine.round().traces
    assert seen[1, "personal_share"] == float(mask.double().mean()) > 0
    assert seen[1, "personal_share/head.weight"] == float(mask[35:55].double().mean())


def test_the_personal_part_is_pulled_to_where_it_was():
    """Not to the bound, which is for what is shared."""
    away = {}
    for strength in (0.0, 5.0):
        run = Simulation("feddpa", blobs([12]), threshold=-1.0, lambda_1=strength, constraint_form="squared").run(1)
        away[strength] = float((run.log[0].after_fit[0].params - run.initial.params).norm())
    assert 0 < away[5.0] < away[0.0] < 0.5
