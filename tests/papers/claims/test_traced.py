"""The methods that also trace what a claim asks for."""

import math

import pytest
import torch

from fedbench_papers.claims.traced import angle
from tests.methods.simulator import Simulation, assert_same, blobs

MODULE = "fedbench_papers.claims.traced"


@pytest.mark.parametrize(("own", "plain"), [("UpdateAngles", "fedavg"), ("HeadSensitivity", "local")])
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
