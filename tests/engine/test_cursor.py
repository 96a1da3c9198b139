"""One fit of several: its batches in order, and those of several gathered at once."""

from itertools import chain

import pytest
import torch

from fedbench.data.augmentation import Augmentation
from fedbench.data.split import Split, join_splits
from fedbench.engine.cursor import Cursor, FitRequest, gather_batches
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Amount, Fit, PairedBatches
from tests.engine.test_compiled import learner_of

SAMPLES = torch.randint(0, 256, (60, 2, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
FACTORS = torch.full((2, 1, 1), 0.01), torch.zeros(2, 1, 1)


def split(client: int, samples: torch.Tensor = SAMPLES, augmentation: Augmentation | None = None) -> Split:
    rows = torch.arange(20 * client, 20 * client + 19)
    return Split(samples, rows, rows % 3, FACTORS, (0, client, 1), torch.channels_last, augmentation=augmentation)


CHANGE = Augmentation(["flip", "crop"], padding=1)
SETS = {
    "one data set": lambda client: split(client),
    "augmented": lambda client: split(client, augmentation=CHANGE),
    "copies of the data": lambda client: split(client, SAMPLES.clone(), CHANGE),
    "pairs": lambda client: PairedBatches(split(client), split(2 - client), size=4),
}


@pytest.mark.parametrize("name", SETS)
def test_batches_of_several_fits_are_those_of_each_alone(name, net):
    learner = learner_of(net, "loop", epochs=2)
    requests = [FitRequest(Fit(learner.initial(), SETS[name](client)), learner.ledger) for client in range(3)]
    planned = [Cursor(learner.engine, request) for request in requests]
    size = planned[0].sizes[0]
    taken = [(cursor, cursor.take(size, 3 - place)) for place, cursor in enumerate(planned)]  # three, two and one
    found = gather_batches(taken)
    expected = []
    for request, (_, places) in zip(requests, taken, strict=True):
        data, seconds = learner.engine.training_data(request.fit), learner.engine.second_batches(request.fit)
        batches = []
        for index in chain.from_iterable(learner.engine.plan(request.fit)):
            batch = [index, *data.batch(index), *(next(seconds) if seconds else ())]
            batches += [batch] if len(index) == size[0] else []
        expected += batches[: len(places)]
    assert len(expected) == 6
    for place, batch in enumerate(expected):
        for whole, own in zip((found.index, *found.tensors), batch, strict=True):
            assert torch.equal(whole[place], own)


def test_their_order_is_that_of_the_loop(net, blobs):
    learner = learner_of(net, "loop", epochs=2)
    fit = Fit(learner.initial(), blobs(20))
    cursor = Cursor(learner.engine, FitRequest(fit, Ledger(learner.device)))
    assert cursor.sizes == [(8,), (8,), (4,)] * 2
    for index in chain.from_iterable(learner.engine.plan(fit)):
        assert cursor.next_size == (len(index),)
        (places,) = cursor.take(cursor.next_size, 1)
        assert torch.equal(places.index, index)
        cursor.done += 1
    assert cursor.next_size is None


def test_of_pairs_both_have_sizes(net, blobs):
    learner = learner_of(net, "loop")
    fit = Fit(learner.initial(), PairedBatches(blobs(16), blobs(11, key=(5,)), 8), amount=Amount(epochs=2))
    assert Cursor(learner.engine, FitRequest(fit, Ledger(learner.device))).sizes == [(8, 8), (8, 3)] * 2


def test_logged_values_are_those_of_their_epoch(net, blobs):
    learner = learner_of(net, "loop", epochs=2)
    cursor = Cursor(learner.engine, FitRequest(Fit(learner.initial(), blobs(20)), Ledger(learner.device)))
    for size, value in zip(cursor.sizes, (1.0, 2.0, 6.0, 10.0, 20.0, 30.0), strict=True):
        cursor.logs_of[size].append(torch.tensor([value]))
    cursor.end([("loss", {})], torch.stack(cursor.last_logs()).tolist())
    assert cursor.logged == {"loss": pytest.approx((8 * 10 + 8 * 20 + 4 * 30) / 20)}


def test_a_look_takes_nothing(net):
    learner = learner_of(net, "loop")
    cursor = Cursor(learner.engine, FitRequest(Fit(learner.initial(), split(0)), learner.ledger))
    first = cursor.first()
    assert first is not None
    assert torch.equal(first.index, cursor.look(cursor.sizes[0]).index)
    (places,) = cursor.take(cursor.sizes[0], 1)
    assert torch.equal(first.index, places.index)


def test_parts_of_other_samples_are_not_joined():
    whole = join_splits([split(0), split(1)])
    assert whole.targets.tolist() == [*split(0).targets.tolist(), *split(1).targets.tolist()]
    assert join_splits([split(0), split(1, SAMPLES.clone())]) is None
    assert join_splits([split(0), split(1, augmentation=CHANGE)]) is None
    assert join_splits([object()]) is None
    alone = split(0)
    assert join_splits([alone]) is alone
