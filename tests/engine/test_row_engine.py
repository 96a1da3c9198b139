"""Engines of rows: fits are grouped by kind, and the loop does what cannot be done in rows."""

import gc
from weakref import WeakSet

import pytest
import torch

from fedbench.config import TrainConfig
from fedbench.engine.cursor import FitRequest
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Fit, Step
from fedbench.engine.group import Group
from fedbench.engine.learner import Learner
from fedbench.module.weights import Weights
from tests.engine.test_compiled import assert_same, learner_of, trained


def test_half_precision_is_stepped_in_rows(net, blobs):
    loop, compiled = (learner_of(net, engine, 4, precision="bf16-mixed") for engine in ("loop", "compiled"))
    asked = lambda own: [Fit(own.initial(), blobs(n, key=(n,))) for n in (20, 16)]  # noqa: E731
    for a, b in zip(trained(loop, asked(loop))[0], trained(compiled, asked(compiled))[0], strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=0, atol=1e-2)
    assert not compiled.row_engine.remarks


def test_fits_of_two_rates_are_trained_apart(net, blobs):
    loop, compiled = (learner_of(net, engine, 3) for engine in ("loop", "compiled"))
    rated = lambda own: [Fit(own.initial(), blobs(16), step=Step(lr=lr)) for lr in (0.1, 0.01)]  # noqa: E731
    found = [trained(own, rated(own))[0] for own in (loop, compiled)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=0, atol=1e-6)


def test_the_loop_counts_a_fit_once_that_fails_in_rows(net, blobs, monkeypatch):
    loop, compiled = (learner_of(net, engine, 3) for engine in ("loop", "compiled"))
    monkeypatch.setattr(type(compiled.row_engine.rows), "weights", lambda self, row: 1 / 0)
    (a, one), (b, other) = (trained(own, [Fit(own.initial(), blobs(20))]) for own in (loop, compiled))
    assert_same(a[0], b[0])
    assert (one[0].loss, one[0].steps) == (other[0].loss, other[0].steps)


def test_who_fails_after_its_steps_is_counted_once_and_the_others_too(net, blobs, monkeypatch):
    loop, compiled = (learner_of(net, engine, 3) for engine in ("loop", "compiled"))
    group, seen = Group._copy_back, list[object]()

    def copy_back(self, cursor):
        seen.append(cursor)
        return group(self, cursor) if len(seen) != 2 else 1 / 0

    monkeypatch.setattr(Group, "_copy_back", copy_back)
    asked = [Fit(compiled.initial(), blobs(20, key=(n,))) for n in range(3)]
    ledgers = [Ledger(compiled.device) for _ in asked]
    found = compiled.row_engine.fit_together([FitRequest(asked[n], ledgers[n], n) for n in range(3)])
    assert isinstance(found[1], ZeroDivisionError)
    _, costs = trained(loop, asked)
    assert [(own.steps, pytest.approx(own.loss)) for own in ledgers] == [(own.steps, own.loss) for own in costs]


def test_a_refusal_keeps_nothing_of_the_fits_that_it_was_for(net, blobs):
    class Random(net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) + 0 * torch.rand(())

    compiled, kept = learner_of(Random, "compiled", 3), WeakSet[Weights]()
    for _ in range(3):
        asked = [Fit(compiled.initial(), blobs(20, key=(n,))) for n in range(3)]
        kept.update(fit.start for fit in asked)
        trained(compiled, asked)
    assert compiled.row_engine.remarks
    del asked
    gc.collect()
    assert not kept


def test_a_client_has_a_row_by_its_number(net):
    compiled = Learner(net(), TrainConfig(engine="compiled", width=4), optimizer="sgd").row_engine
    assert [compiled.row_of(client, place) for place, client in enumerate((7, 4, 9))] == [3, 0, 1]
