"""Pulls on a part of a model."""

from types import SimpleNamespace

import pytest
import torch

from fedbench.engine import pulls
from fedbench.engine.fit import Fit
from fedbench.engine.pulls import layer_norm_pull, pull_to
from fedbench.module.layout import Slot
from tests.methods.simulator import close

W, G, RECEIVED = [1.0, 2, 0, -1], [0.5, 1.0, 0, 1], [0.25, 1.0, 0, -0.75]


M = [1.0, 0, 0, 1]


SLOTS = (Slot("a", (2,), 0, 2), Slot("b", (2,), 2, 4))


def constraint(form, w, anchor, part, weight, goal):
    """The formulas of the specification."""
    offset = w - torch.tensor(anchor)
    distance = (offset * torch.tensor(part)).norm()
    if form == "layer_norm":
        distance = offset[:2].norm() + offset[2:].norm()
    size = (distance - goal).abs()
    return weight / 2 * (size**2 if form == "squared" else size)


def pulled(form, w, anchor, part, weight, goal):
    """The gradient that is added where a phase moves entries that began at `w` and is at `w` still."""
    part = torch.tensor(part)
    step = pull_to(torch.tensor(anchor), w, part.bool(), SLOTS, form, weight, goal)
    g, needs = torch.zeros(4), Fit(None, None, step=step).needs(w)
    step.edit(g, w, needs)
    assert form == "layer_norm" or not g[part == 0].any()
    assert (g.shape == needs.anchor.shape) == (form == "layer_norm" or sum(part) > 4 * pulls.LITTLE)
    return g * part  # the others are held by the learner


@pytest.mark.parametrize(
    ("form", "anchor", "first", "slope", "second", "other"),
    [
        ("norm", RECEIVED, 0.039528, [0.047434, 0, 0, -0.015811], 0.0125, [0, 0.025, 0, 0]),
        ("norm", G, 0.103078, [0.012127, 0, 0, -0.048507], 0.0125, [0, 0.025, 0, 0]),
        ("squared", RECEIVED, 0.03125, [0.075, 0, 0, -0.025], 0.00625, [0, 0.025, 0, 0]),
        ("squared", G, 0.2125, [0.05, 0, 0, -0.2], 0.00625, [0, 0.025, 0, 0]),
        ("layer_norm", G, 0.155902, [0.022361, 0, 0, -0.05], 0.065451, [0, 0.022361, 0, 0]),
    ],
)
@pytest.mark.parametrize("little", [0.0, 1.0], ids=["whole", "part alone"])
def test_the_constraint(form, anchor, first, slope, second, other, little, monkeypatch):
    monkeypatch.setattr(pulls, "LITTLE", little)
    rest = [1 - m for m in M]
    for part, weight, goal, value, expected in ((M, 0.1, 0.0, first, slope), (rest, 0.05, 0.5, second, other)):
        w = torch.tensor(W, requires_grad=True)
        penalty = constraint(form, w, anchor, part, weight, goal)
        penalty.backward()
        assert close(penalty.detach(), [value])
        found = pulled(form, w.detach(), anchor, part, weight, goal)
        assert close(found, expected)
        assert torch.allclose(found, w.grad * torch.tensor(part), atol=1e-7)


def test_tensors_that_are_trained_in_part_are_pulled_by_their_whole_distance():
    everything = pulled("layer_norm", torch.tensor(W), G, [1.0] * 4, 0.1, 0.0)
    assert close(everything, [0.022361, 0.044721, 0, -0.05])
    assert close(pulled("layer_norm", torch.tensor(W), G, [1.0] * 4, 0.05, 0.5), [0.011180, 0.022361, 0, -0.025])


@pytest.mark.parametrize("form", ["norm", "squared", "layer_norm"])
def test_at_the_reference_there_is_no_pull(form):
    for goal in (0.0, 0.5):
        assert not pulled(form, torch.tensor(W), W, [1.0] * 4, 0.1, goal).any()


@pytest.mark.parametrize("form", ["norm", "squared", "layer_norm"])
@pytest.mark.parametrize("distance", [0.0, 1e-24, 1e-15])
@pytest.mark.parametrize("weight", [0.1, 1e9])
def test_near_the_reference_a_pull_stays_within_its_weight(form, distance, weight):
    """Squares of 1e-24 are 0 in float32, and so is the norm of such a distance."""
    found = pulled(form, torch.full((4,), distance), [0.0] * 4, [1.0] * 4, weight, 0.5)
    assert found.norm() <= weight


@pytest.mark.parametrize("form", ["norm", "layer_norm"])
def test_at_the_goal_there_is_no_pull(form):
    assert not pulled(form, torch.tensor([3.0, 4, 0, 0]), [0.0] * 4, [1.0] * 4, 0.1, 5.0).any()


def test_the_pull_by_tensors_serves_a_stack_of_clients():
    g, w, away = torch.zeros(3, 4), torch.randn(3, 4), torch.randn(3, 4)
    weight, goal = torch.rand(3, 1), torch.rand(3, 1)
    state = SimpleNamespace(slots=SLOTS, anchor=away, weight=weight, goal=goal, room=torch.empty(3, 4))
    layer_norm_pull(g, w, state)
    for i in range(3):
        row = torch.zeros(4)
        state = SimpleNamespace(slots=SLOTS, anchor=away[i], weight=weight[i, 0], goal=goal[i, 0], room=row.clone())
        layer_norm_pull(row, w[i], state)
        assert torch.equal(row, g[i])
