"""A module's own optimiser under a fit: its rate scaled, frozen entries held, its state as vectors and back."""

from types import SimpleNamespace

import pytest
import torch
from torch.optim import lr_scheduler

from fedbench.engine.fit import Amount, Fit, Step
from fedbench.engine.module_optimizer import advance, as_vectors, by_tensor, hold_frozen, scale_rate
from fedbench.errors import ConfigError


def test_a_state_by_tensor_and_as_vectors_is_the_same(learner, net):
    layout = learner(net).layout
    flat = {"step": torch.tensor(3.0), "exp_avg": torch.arange(layout.size, dtype=torch.float32)}
    back = as_vectors(by_tensor(flat, layout), layout)
    assert back.keys() == flat.keys()
    assert all(torch.equal(back[name], flat[name]) for name in flat)


def test_a_scaled_rate_scales_whatever_the_scheduler_makes_of_it():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scale_rate(optimizer, 0.1)
    for expected in (-0.1, -0.15, -0.175):
        weight.grad = torch.ones(1)
        optimizer.step()
        scheduler.step()
        assert weight.item() == pytest.approx(expected)
    assert scheduler.get_last_lr() == [0.125]


def test_held_entries_stay_where_they_are_under_momentum_and_decay():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.5)
    mask = torch.tensor([True, False, True, False])
    hold_frozen(optimizer, weight.data, mask)
    for _ in range(3):
        weight.grad = torch.ones(4)
        optimizer.step()
    assert torch.equal(weight.data[~mask], torch.ones(2))
    assert (weight.data[mask] < 0.5).all()


def test_schedulers_step_at_their_own_interval_and_frequency():
    steps = []
    scheduler = SimpleNamespace(step=lambda *value: steps.append(value))
    config = SimpleNamespace(
        scheduler=scheduler, interval="step", frequency=2, reduce_on_plateau=False, monitor=None, strict=True
    )
    for count in (1, 2, 3, 4):
        advance([config], "step", count, False, dict)
        advance([config], "epoch", count, False, dict)
        advance([config], "step", count, True, dict)
    assert steps == [(), ()]


def test_a_plateau_needs_what_it_monitors():
    config = SimpleNamespace(
        scheduler=None, interval="epoch", frequency=1, reduce_on_plateau=True, monitor="val_loss", strict=True
    )
    with pytest.raises(ConfigError, match=r"monitors 'val_loss'.*self\.log, monitor one of loss, leave.*sgd$"):
        advance([config], "epoch", 1, True, lambda: {"loss": 1.0})
    config.strict = False
    advance([config], "epoch", 1, True, lambda: {"loss": 1.0})  # its scheduler, which is none, is not asked


def test_a_base_rate_asked_for_takes_the_place_of_the_modules(learner, net, blobs):
    """The module's rate is 0.1: a fit that asks for 0.1 is as one that asks for none, and half of it is another."""
    moved = []
    for lr in (None, 0.1, 0.05):
        trained = learner(net, "module")
        start = trained.initial()
        weights = trained.fit(Fit(start, blobs(18), amount=Amount(steps=1), step=Step(lr=lr)))
        moved.append(weights.params - start.params)
    assert torch.equal(moved[0], moved[1])
    torch.testing.assert_close(moved[2], moved[0] / 2)
