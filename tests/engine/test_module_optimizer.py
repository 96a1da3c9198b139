"""A module's own optimiser under a fit: its rate scaled, frozen entries held, its state as vectors and back."""

from types import SimpleNamespace

import pytest
import torch
from torch.optim import lr_scheduler

from fedbench.engine.fit import Amount, Fit, Step
from fedbench.engine.module_optimizer import advance, as_vectors, by_tensor, hold_frozen, scale_rate
from fedbench.engine.probe import model_warnings
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


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_an_optimiser_of_other_tensors_is_refused(learner, net, engine):
    class Other(net):
        def configure_optimizers(self):
            return torch.optim.Adam(torch.nn.Linear(2, 2).parameters())

    with pytest.raises(ConfigError, match=r"Other.configure_optimizers: .* holds none of the model's"):
        learner(Other, engine=engine)
    assert learner(Other, optimizer="sgd", engine=engine).left_out == []


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_tensors_that_an_optimiser_leaves_out_are_named(learner, net, engine):
    class Part(net):
        def configure_optimizers(self):
            return torch.optim.SGD(self.body.parameters(), lr=0.1)

    class Frozen(Part):
        def __init__(self):
            super().__init__()
            self.head.requires_grad_(False)

    class Several(net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.body, self.head)]

    (line,) = model_warnings(learner(Part, engine=engine), [5])
    assert line.startswith("model Part: the optimiser of its configure_optimizers lacks head.weight, head.bias, which")
    assert model_warnings(learner(Frozen, engine=engine), [5]) == []
    assert model_warnings(learner(net, engine=engine), [5]) == []
    assert learner(Several, engine="trainer").left_out == []
