"""A group's fits end once: those that fail or are refused are counted once and keep nothing."""

import gc
from weakref import WeakSet

import pytest
import torch

from fedbench.engine.cursor import FitRequest
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Fit
from fedbench.engine.group import Group
from fedbench.module.weights import Weights
from tests.engine.test_compiled import assert_same, learner_of, trained


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
