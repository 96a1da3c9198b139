"""The methods that trace what a claim asks for, or leave a client out."""

import math

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench_papers.claims.traced import angle, spread_and_top
from tests.methods.simulator import Data, Simulation, assert_same, blobs, equal

MODULE = "fedbench_papers.claims.traced"


@pytest.mark.parametrize(
    ("own", "plain"),
    [
        ("UpdateAngles", "fedavg"),
        ("HeadSensitivity", "local"),
        ("LeaveOneOut", "co-pfl"),
        ("ClassShares", "fedcac"),
        ("LossRises", "fedobp"),
    ],
)
def test_the_numbers_are_those_of_the_method(own, plain):
    assert_same(*[Simulation(name, blobs([9, 17])).run(3) for name in (f"{MODULE}:{own}", plain)])


def test_an_angle():
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    assert math.isclose(angle(one, other), 45.0)
    assert angle(one, -one) == 180.0


def test_the_angle_between_updates_is_traced():
    run = Simulation(f"{MODULE}:UpdateAngles", blobs([9, 17])).run(1)
    assert 0 < run.log[0].traces[-1, "update_angle"] < 180


def test_a_row_of_the_head_for_every_class():
    run = Simulation(f"{MODULE}:HeadSensitivity", blobs([9])).run(1)
    names = [name for client, name in run.log[0].traces if name.startswith("head_sensitivity/")]
    assert names == [f"head_sensitivity/{label}" for label in range(len(names))]
    assert all(value >= 0 for value in run.log[0].traces.values())


def test_a_run_without_the_last_client_is_one_that_never_had_it():
    clients = blobs([9, 17, 12])
    left, fewer = Simulation(f"{MODULE}:LeaveOneOut", clients, without=2), Simulation("co-pfl", clients[:2])
    for _ in range(3):
        one, other = left.round(), fewer.round()
        for point in ("after_fit", "after_agg"):
            for client in (0, 1):
                assert equal(getattr(one, point)[client], getattr(other, point)[client])
        assert {key for key in one.traces if key[1] == "alpha"} == {(0, "alpha"), (1, "alpha")}
        assert [one.traces[client, "images"] for client in (0, 1)] == [9, 17]


def test_the_client_that_is_left_out_would_have_changed_the_others():
    clients = blobs([9, 17, 12])
    without, all_of_them = (Simulation(f"{MODULE}:LeaveOneOut", clients, without=own).run(1) for own in (2, None))
    assert not equal(without.log[0].after_agg[0], all_of_them.log[0].after_agg[0])


def test_the_shares_of_classes_are_those_of_the_clients_data():
    clients = blobs([9, 17])
    traces = Simulation(f"{MODULE}:ClassShares", clients).run(1).log[0].traces
    for client, data in enumerate(clients):
        for label in range(4):
            share = sum(int(own) == label for own in data.labels) / len(data)
            assert traces[client, f"class_share/{label}"] == share


def test_scores_are_sampled_evenly_and_from_the_top():
    scores = torch.tensor([5.0, 1.0, 4.0, 0.0, 3.0, 2.0])
    found = {name: places.tolist() for name, places in spread_and_top(scores, 3).items()}
    assert found == {"": [1, 4, 0], "top_": [4, 2, 0]}


def test_by_how_much_the_loss_rises_with_one_global_number():
    """Round 2, the last one: a client's own model is that of round 1, the global one the mean of both."""
    clients = blobs([9, 9])
    run = Simulation(f"{MODULE}:LossRises", clients, rounds=2, sampled=20).run(2)
    assert not any("rise" in name for _, name in run.log[0].traces), "only in the last round"
    own = run.log[0].after_fit[0].params
    shared = torch.stack([run.log[0].after_fit[client].params for client in (0, 1)]).mean(0)
    scores, last = (own.double() - shared) ** 2, run.log[1].traces
    slope = torch.func.grad(loss_of)(own, clients[0])
    for name, places in spread_and_top(scores, 20).items():
        for number, place in enumerate(places.tolist()):
            changed = own.clone()
            changed[place] = shared[place]
            rise = float(loss_of(changed, clients[0]) - loss_of(own, clients[0]))
            first_order = abs(float(slope[place] * (shared[place] - own[place])))
            assert last[0, f"{name}score/{number}"] == pytest.approx(float(scores[place]), rel=1e-3, abs=1e-12)
            assert last[0, f"{name}rise/{number}"] == pytest.approx(rise, abs=1e-6)
            assert last[0, f"{name}taylor/{number}"] == pytest.approx(first_order, rel=1e-3, abs=1e-7)
    assert max(abs(last[0, f"top_rise/{number}"]) for number in range(20)) > 1e-3, "there is something to see"


def loss_of(params: torch.Tensor, data: Data) -> torch.Tensor:
    """The mean cross-entropy of the flat vector's model."""
    first, second, third, last = params.split([30, 5, 20, 4])
    hidden = torch.relu(data.x @ first.view(5, 6).T + second)
    return torch.nn.functional.cross_entropy(hidden @ third.view(4, 5).T + last, data.labels)


def test_a_client_that_is_not_there_cannot_be_left_out():
    for sizes, number in (([9, 17], 2), ([9], 0)):
        with pytest.raises(ConfigError, match=f"method.without = {number}: needs this client and another one"):
            list(Simulation(f"{MODULE}:LeaveOneOut", blobs(sizes), without=number).method.check())
