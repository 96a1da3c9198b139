"""The batches of one fit of several."""

import pytest
import torch

from fedbench.config import TrainConfig
from fedbench.engine.cursor import Batch, BatchCursor, FitRequest
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Amount, Fit, PairedBatches
from fedbench.engine.learner import Learner


@pytest.fixture
def stacking(net) -> Learner:
    return Learner(net(), TrainConfig(engine="stack", batch_size=8, epochs=2), optimizer="sgd")


def walked(learner: Learner, fit: Fit) -> tuple[list[Batch], list[bool]]:
    cursor = BatchCursor(learner.engine, FitRequest(fit, Ledger(learner.device)))
    batches, whole = [], []
    while cursor.next is not None:
        whole.append(cursor.is_full)
        batches.append(cursor.take())
    assert cursor.done == len(batches)
    return batches, whole


def test_they_are_those_of_the_loop_in_its_order(stacking, blobs):
    data = blobs(20)
    batches, whole = walked(stacking, Fit(stacking.initial(), data))
    plan = [index for epoch in stacking.engine.plan(Fit(stacking.initial(), data)) for index in epoch]
    assert whole == [True, True, False] * 2
    assert [batch.ends_epoch for batch in batches] == [False, False, True] * 2
    for batch, index in zip(batches, plan, strict=True):
        assert torch.equal(batch.index, index)
        assert all(torch.equal(a, b) for a, b in zip(batch.tensors, data.batch(index), strict=True))


def test_augmented_ones_are_drawn_one_after_another(stacking, blobs):
    class Augmented(type(blobs(1))):
        augmentation = True

        def with_augmentation(self, stream: torch.Generator) -> "Augmented":
            self.stream = stream
            return self

        def batch(self, index: torch.Tensor):
            x, y = super().batch(index)
            return x + torch.rand((), generator=self.stream), y

    fit = lambda: Fit(stacking.initial(), Augmented(20))  # noqa: E731
    batches, _ = walked(stacking, fit())
    own = fit()
    seen = stacking.engine.training_data(own)
    for batch in batches:
        assert torch.equal(batch.tensors[0], seen.batch(batch.index)[0])


def test_of_pairs_both_must_be_whole(stacking, blobs):
    fit = Fit(stacking.initial(), PairedBatches(blobs(16), blobs(11, key=(5,)), 8), amount=Amount(epochs=2))
    batches, whole = walked(stacking, fit)
    assert [len(batch.tensors) for batch in batches] == [4] * 4
    assert [len(batch.tensors[2]) for batch in batches] == [8, 3, 8, 3]
    assert whole == [True, False, True, False]


def test_without_a_size_no_batch_is_like_those_of_others(net, blobs):
    learner = Learner(net(), TrainConfig(engine="stack", batch_size="full", epochs=2), optimizer="sgd")
    assert walked(learner, Fit(learner.initial(), blobs(20)))[1] == [False, False]


def test_logged_values_are_those_of_their_epoch(stacking, blobs):
    cursor = BatchCursor(stacking.engine, FitRequest(Fit(stacking.initial(), blobs(20)), Ledger(stacking.device)))
    for value in (1.0, 2.0, 6.0, 10.0, 20.0, 30.0):
        batch = cursor.take()
        cursor.log([("loss", {})], [torch.tensor(value)], len(batch.index), batch.ends_epoch)
    assert cursor.logged == {"loss": pytest.approx((8 * 10 + 8 * 20 + 4 * 30) / 20)}
