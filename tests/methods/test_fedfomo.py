"""fedfomo: what the specification promises."""

import pytest
import torch

from fedbench.methods.fedfomo import distance, first_order_weights, mixture
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close, equal

EXACT = {"precision": "64-true", "batch_size": "full", "epochs": 1}
NONE = torch.zeros(0, dtype=torch.float64)


def model(*values: float) -> Weights:
    return Weights(torch.tensor(values, dtype=torch.float64), NONE, NONE.long())


CANDIDATES, LOSSES = [model(3, 4), model(0, 2), model(-1, 0)], [0.5, 0.8, 1.3]


@pytest.mark.parametrize(
    ("base", "loss", "norm", "weights", "received"),
    [
        (model(1, 1), 1.0, "l2", [0.138675, 0.141421, -0.134164], [1.485293, 2.990195]),
        (model(1, 1), 0.4, "l2", None, [1, 1]),
        (model(0, 0), 1.0, "l1", [0.071429, 0.1, -0.3], [1.25, 2.833333]),
        (model(0, 0), 1.0, "l2", [0.1, 0.1, -0.3], None),
    ],
)
def test_the_mixture_on_paper(base, loss, norm, weights, received):
    found = first_order_weights(loss, LOSSES, [distance(c.params, base.params, norm) for c in CANDIDATES])
    assert weights is None or close(torch.tensor(found), weights)
    assert received is None or close(mixture(base, CANDIDATES, found).params, received)
    assert weights is not None or max(found) < 0
    assert first_order_weights(1.0, [0.2], [0.0]) == [0.0]


def server(affinity, last, round=9, **options):
    run = Simulation("fedfomo", blobs([9] * 6), epsilon=0, ties="cyclic", rounds=20, **options)
    run.server.affinity[0] = torch.tensor(affinity, dtype=torch.float64)
    run.server.last, run.server.round = last, round
    return run


def test_clients_are_chosen_by_affinity_then_in_a_circle():
    run = server([0, 0.2, 0, 0.5, 0, -1], [*range(6)], models=4)
    assert run.method.choose_models(run.server, 0) == [3, 1, 2, 4]
    few = server([0] * 6, [*range(6)], models=3)
    assert few.method.choose_models(few.server, 4) == [5, 0, 1]
    few.server.last = [1, 4]
    assert few.method.choose_models(few.server, 4) == [1]
    all_known = server([0] * 6, [1], pool="all", models=3)
    all_known.server.models = dict.fromkeys([0, 1, 2])
    assert all_known.method.choose_models(all_known.server, 0) == [1, 2]


@pytest.mark.parametrize(("round", "share"), [(1, 1.0), (5, 0.6), (11, 0.0)])
def test_exploration_falls_by_the_round(round, share):
    run = Simulation("fedfomo", blobs([9] * 6), epsilon=1.0, epsilon_decay=0.1, models=1, rounds=20)
    run.server.affinity[:, 1] = 1.0
    run.server.last = [*range(6)]
    found = []
    for seed in range(60):
        object.__setattr__(run.context, "seed", seed)
        run.server.round = round
        found.append(run.method.choose_models(run.server, 0) != [1])
    assert sum(found) / 60 == pytest.approx(share * 0.8, abs=0.16)
    assert run.method.choose_models(run.server, 0) == run.method.choose_models(run.server, 0)


def test_alone_and_without_a_part_held_out_it_is_local():
    make = lambda m, **o: Simulation(m, blobs([9, 17]), module=Mlp(norm=True), **o).run(3)  # noqa: E731
    assert_same(make("fedfomo", models=0, val_fraction=0, baseline="trained"), make("local"))
    slow = EXACT | {"lr": 0.01, "momentum": 0}
    make = lambda m, **o: Simulation(m, blobs([9, 17]), train=slow, **o).run(3)  # noqa: E731
    assert_near(make("fedfomo", models=0, val_fraction=0), make("local"))


def test_the_next_round_starts_from_what_was_evaluated_and_one_row_changes():
    run = Simulation("fedfomo", blobs([20, 30, 25]), module=Mlp(norm=True), train={"epochs": 1}, models=2)
    run.run(2)
    kept = run.server.affinity.clone()
    assert not kept.diagonal().any()
    expected = [run.log[1].after_agg[i] for i in range(3)]
    run.draw = lambda t: [1]
    run.run(1)
    assert equal(run.states[1].start, Weights(expected[1].params, expected[1].buffers, expected[1].counters))
    assert torch.equal(run.server.affinity[[0, 2]], kept[[0, 2]])
    others, weights = run.log[2].uploads[1].others, run.log[2].uploads[1].weights
    assert torch.allclose(run.server.affinity[1, others], kept[1, others] + weights)
    assert equal(run.personal(0), run.personal(0))
    assert run.server.last == [1]
    assert run.log[2].traces[1, "affinity/0"] == float(run.server.affinity[1, 0])
    assert (1, "affinity/1") not in run.log[2].traces
    assert (0, "affinity/1") not in run.log[2].traces
    assert torch.equal(run.server.models[1].params, run.log[2].after_fit[1].params)


def test_received_models_are_weighed_on_the_held_out_part():
    run = Simulation("fedfomo", blobs([20, 30]), train=EXACT, models=1).run(2)
    client = run.client(0, 2)
    kept, held = run.method.parts(client)
    assert (len(kept), len(held)) == (16, 4)
    own, base, other = run.log[1].after_fit[0], run.states[0].start, run.log[1].after_fit[1]
    losses = [run.learner.loss(m, held) for m in (base, own, other)]
    apart = [float((m.params - base.params).norm()) for m in (own, other)]
    weights = [(losses[0] - loss) / far for loss, far in zip(losses[1:], apart, strict=True)]
    received = run.method.receive(client)
    assert close(received.weights, weights, digits=9)
    assert torch.allclose(received.params, mixture(base, [own, other], weights).params)


def test_normalised_affinities_are_divided_by_their_sum():
    make = lambda **o: Simulation("fedfomo", blobs([20, 30]), train=EXACT, models=1, **o).run(2)  # noqa: E731
    raw, scaled = make(), make(affinity="normalised")
    assert_near(raw, scaled)
    client = raw.client(0, 1)
    client.message.others, client.round = torch.tensor([1]), 1
    ratio = raw.server.affinity[0, 1] / scaled.server.affinity[0, 1]
    assert float(ratio) > 0
    total = torch.tensor([0.071429, 0.1, -0.3])
    assert close(total[:2] / abs(float(total.sum())), [0.555556, 0.777778], digits=4)


def test_bytes_are_those_of_the_models():
    run = Simulation("fedfomo", blobs([9] * 4), module=Mlp(norm=True), models=2).run(2)
    assert [set(seen.down.values()) for seen in run.log] == [{0}, {2 * 4 * 79}]
    assert [set(seen.up.values()) for seen in run.log] == [{4 * 79}, {4 * 79 + 8}]
    assert run.method.global_model(run.server, run.initial) is None


def test_alike_clients_find_each_other():
    data = blobs([40], seed=1) + blobs([40], seed=2, shift=2) + blobs([40], seed=3, shift=2) + blobs([40], seed=4)
    run = Simulation("fedfomo", data, train={"epochs": 3}, models=3).run(4)
    affinity = run.server.affinity
    assert min(affinity[0, 3], affinity[3, 0], affinity[1, 2], affinity[2, 1]) > 0
    assert max(affinity[0, 1], affinity[0, 2], affinity[1, 0], affinity[2, 3]) < 0


def test_a_newcomer_mixes_models_of_others_that_it_has_no_affinity_to_yet():
    run = Simulation("fedfomo", blobs([9, 17, 12]), models=2).run(1)
    chosen = run.method.choose_models(run.server, 3)
    assert len(set(chosen)) == 2
    assert set(chosen) <= {0, 1, 2}
    run.server.affinity[:] = torch.arange(3.0)  # of the others, which do not matter
    assert run.method.choose_models(run.server, 3) == chosen
    data = blobs([20], seed=7)[0]
    loss = run.learner.loss
    assert loss(run.joined(data, 0), data) < loss(run.initial, data)


def test_weights_of_models_are_in_float64():
    run = Simulation("fedfomo", blobs([20, 30])).run(2)
    found = run.method.receive(run.client(0, 3))
    assert found.weights.dtype == torch.float64
    assert len(found.weights) == 2
