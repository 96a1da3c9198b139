"""Batches of several fits that are gathered at once are those of each alone."""

import pytest
import torch

from fedbench.data.augmentation import Augmentation
from fedbench.data.split import Split, join_splits
from fedbench.engine.cursor import BatchCursor, FitRequest
from fedbench.engine.fit import Fit, PairedBatches
from fedbench.engine.planned_cursor import PlannedCursor, gather_batches
from tests.engine.test_stack import learner_of

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
    planned = [PlannedCursor(learner.engine, request) for request in requests]
    size = planned[0].sizes[0]
    taken = [(cursor, cursor.take(size, 3 - place)) for place, cursor in enumerate(planned)]  # three, two and one
    found = gather_batches(taken)
    expected = []
    for request, (_, places) in zip(requests, taken, strict=True):
        cursor = BatchCursor(learner.engine, request)
        while len(expected) < len(found.index) and places:
            batch = cursor.take()
            if len(batch.index) == size[0]:
                expected.append(batch)
                places.pop()
    assert len(expected) == 6
    for place, batch in enumerate(expected):
        assert torch.equal(found.index[place], batch.index)
        for whole, own in zip(found.tensors, batch.tensors, strict=True):
            assert torch.equal(whole[place], own)


def test_a_look_takes_nothing(net):
    learner = learner_of(net, "loop")
    cursor = PlannedCursor(learner.engine, FitRequest(Fit(learner.initial(), split(0)), learner.ledger))
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
