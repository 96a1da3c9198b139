"""Engines of rows: fits are grouped by kind, and the loop does what cannot be done in rows."""

import pytest
import torch

from fedbench.config import TrainConfig
from fedbench.engine.fit import Fit, Step
from fedbench.engine.learner import Learner
from tests.engine.test_stack import assert_same, learner_of, trained


@pytest.mark.parametrize("width", [1, 4])
def test_half_precision_is_stepped_in_rows(width, net, blobs):
    loop, stack = (learner_of(net, engine, width, precision="bf16-mixed") for engine in ("loop", "stack"))
    asked = lambda own: [Fit(own.initial(), blobs(n, key=(n,))) for n in (20, 16)]  # noqa: E731
    for a, b in zip(trained(loop, asked(loop))[0], trained(stack, asked(stack))[0], strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=0, atol=0 if width == 1 else 1e-2)
    assert not stack.row_engine.remarks


def test_fits_of_two_rates_are_trained_apart(net, blobs):
    loop, stack = (learner_of(net, engine, 3) for engine in ("loop", "stack"))
    rated = lambda own: [Fit(own.initial(), blobs(16), step=Step(lr=lr)) for lr in (0.1, 0.01)]  # noqa: E731
    found = [trained(own, rated(own))[0] for own in (loop, stack)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=0, atol=1e-6)


def test_the_loop_counts_a_fit_once_that_fails_in_rows(net, blobs, monkeypatch):
    loop, stack = (learner_of(net, engine, 3) for engine in ("loop", "stack"))
    monkeypatch.setattr(type(stack.row_engine.rows), "weights", lambda self, row: 1 / 0)
    (a, one), (b, other) = (trained(own, [Fit(own.initial(), blobs(20))]) for own in (loop, stack))
    assert_same(a[0], b[0])
    assert (one[0].loss, one[0].steps) == (other[0].loss, other[0].steps)


def test_a_client_has_a_row_by_its_number_in_a_stack(net):
    stack = Learner(net(), TrainConfig(engine="stack", width=4), optimizer="sgd").row_engine
    assert [stack.row_of(client, place) for place, client in enumerate((7, 4, 9))] == [3, 0, 1]
