"""A fit as a value."""

from types import SimpleNamespace

import pytest
import torch

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Fit, Loss, OneBatch, PairedBatches, Step


def test_needs_of_step_and_loss_are_tensors_of_the_parameters_kind():
    fit = Fit(None, None, loss=Loss(print, weight=2), step=Step(print, mu=0.5, anchor="kept"))
    needs = fit.needs(torch.zeros(3, dtype=torch.float64))
    assert isinstance(needs, SimpleNamespace)
    assert (needs.mu.dtype, float(needs.mu), float(needs.weight), needs.anchor) == (torch.float64, 0.5, 2.0, "kept")


def test_a_step_of_a_round_keeps_all_but_decay_and_memory():
    step = Step(print, lr=0.1, rule=torch.optim.SGD, memory="personal", mu=1.0)
    held: dict = {}
    other = step.of(0.5, held)
    assert (other.edit, other.lr, other.rule, other.needs) == (print, 0.1, torch.optim.SGD, {"mu": 1.0})
    assert other.decay == 0.5
    assert other.memory is held
    assert (Fit(None, None, step=other).memory, Fit(None, None, step=step).memory) == (held, None)


def test_data_of_one_batch_and_of_two_side_by_side():
    one = OneBatch(torch.arange(4), torch.arange(4) * 10, key=(1, 2))
    x, y = one.batch(torch.tensor([2, 0]))
    assert (len(one), x.tolist(), y.tolist()) == (4, [2, 0], [20, 0])
    paired = PairedBatches(one, OneBatch(torch.zeros(9), torch.zeros(9), key=(9,)), size=3)
    assert (len(paired), paired.key) == (4, (1, 2))
    assert paired.batch(torch.tensor([1]))[1].tolist() == [10]


def test_a_single_sample_of_either_data_set_counts():
    one, two = (OneBatch(torch.zeros(count), torch.zeros(count), key=(1,)) for count in (1, 2))
    single = [Fit(None, data).has_single_sample for data in (one, two, PairedBatches(two, one, 1))]
    assert single == [True, False, True]


@pytest.mark.parametrize(
    ("amount", "train", "steps"),
    [
        ({}, {"epochs": 2}, 6),
        ({}, {"epochs": 2, "steps": 7}, 7),
        ({"epochs": 1}, {"epochs": 2, "steps": 7}, 3),
        ({"steps": 4}, {"epochs": 2}, 4),
        ({"epochs": 5}, {"batch_size": "full"}, 5),
        ({"epochs": 2, "min_batch": 2}, {}, 4),
        ({"epochs": 0}, {}, 0),
    ],
)
def test_gradient_steps_of_an_amount(amount, train, steps):
    assert Amount(**amount).steps_on(17, TrainConfig(**{"batch_size": 8, **train})) == steps
