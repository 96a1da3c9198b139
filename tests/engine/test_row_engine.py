"""Engines of rows: fits are grouped by kind, and the loop does what cannot be done in rows."""

import torch

from fedbench.config import TrainConfig
from fedbench.engine.fit import Fit, Step
from fedbench.engine.learner import Learner
from tests.engine.test_compiled import learner_of, trained


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


def test_a_client_has_a_row_by_its_number(net):
    compiled = Learner(net(), TrainConfig(engine="compiled", width=4), optimizer="sgd").row_engine
    assert [compiled.row_of(client, place) for place, client in enumerate((7, 4, 9))] == [3, 0, 1]
