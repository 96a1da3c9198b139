"""A share of every client's training part is held out."""

import numpy as np
import pytest

from fedbench.data.partitions.assignment import Assignment, apportion
from fedbench.data.partitions.validation import (
    are_shared,
    draw_shared_validation,
    draw_validation,
    shared_lines,
    with_rare_classes,
)


def drawn(rare: int, clients: int = 8, share: float = 0.1) -> np.ndarray:
    """Of each client with 100 images, so many of them of class 1, the numbers held out by class [clients, classes]."""
    labels = np.tile(np.arange(100) < rare, clients).astype(np.int64)
    train = Assignment(np.arange(len(labels)), np.repeat(np.arange(clients), 100))
    held = draw_validation(train, labels, share, np.random.default_rng(0))
    return np.array([np.bincount(labels[held & (train.owners == owner)], minlength=2) for owner in range(clients)])


@pytest.mark.parametrize("rare", [1, 2, 3, 4])
def test_a_class_of_which_every_client_has_a_few_images_reaches_validation(rare):
    held = drawn(rare)
    assert held.sum(1).tolist() == [10] * 8
    assert held[:, 1].sum() == round(8 * rare * 0.1)
    assert held[:, 1].max() <= 1


def test_classes_that_are_not_rare_or_have_their_share_keep_their_draw():
    balanced = np.array([4, 0, 0, 4]), np.full(4, 20), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([4, 4])
    assert with_rare_classes(*balanced).tolist() == [4, 0, 0, 4]
    counts, sizes = np.array([18, 2, 17, 3]), np.array([180, 20, 175, 25])
    owners, labels, wanted = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([20, 20])
    assert with_rare_classes(counts, sizes, owners, labels, wanted).tolist() == counts.tolist()


def test_a_rare_class_takes_the_place_of_one_that_was_rounded_up():
    rng, moved = np.random.default_rng(0), 0
    for _ in range(300):
        owners, labels = np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6)
        sizes = rng.integers(1, [2, 9, 3, 7, 5], (6, 5)).ravel()
        totals = np.bincount(owners, sizes).astype(np.int64)
        quotas = (totals * rng.uniform(0.1, 0.5)).astype(np.int64)
        counts = apportion(sizes, owners, quotas, rng)
        held = with_rare_classes(counts, sizes, owners, labels, quotas)
        assert (np.bincount(owners, held) == quotas).all()
        assert np.abs(held - sizes * quotas[owners] / totals[owners]).max() < 1
        moved += (held != counts).any()
    assert moved > 10


@pytest.mark.parametrize(("clients", "each", "images"), [(12, 20, 100), (12, 90, 100), (100, 10, 5000), (200, 5, 1437)])
def test_an_image_of_several_clients_is_held_out_at_all_of_them_or_at_none(clients, each, images):
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.permutation(images)[:each] for _ in range(clients)])
    train, image = Assignment(rows, np.repeat(np.arange(clients), each)), np.arange(images)
    assert are_shared(train, image)
    held = draw_shared_validation(train, image, image % 3, 0.2, rng)
    assert not {*rows[held]} & {*rows[~held]}
    assert held.mean() == pytest.approx(0.2, abs=0.04)
    by_client = held.reshape(clients, each).sum(1)
    assert (by_client < each).all()
    if images > 10 * each:  # nearly all have images of their own
        assert (by_client > 0).mean() > 0.95
        assert (by_client == round(0.2 * each)).mean() > 0.5
    else:
        assert {*image[rows[held]] % 3} == {0, 1, 2}


def test_images_of_one_client_alone_fill_its_share_by_class():
    rows = np.concatenate([np.arange(50), np.r_[0, np.arange(50, 99)]])  # the first image is the second client's too
    train, image = Assignment(rows, np.repeat([0, 1], 50)), np.arange(99)
    held = draw_shared_validation(train, image, image % 2, 0.2, np.random.default_rng(0))
    assert held.reshape(2, 50).sum(1).tolist() == [10, 10]
    assert all(4 <= own <= 6 for own in (held.reshape(2, 50) & (rows % 2 == 0).reshape(2, 50)).sum(1))


def test_clients_that_hold_out_nothing_are_counted():
    train, image = Assignment(np.array([0, 1, 1, 0, 2, 3]), np.array([0, 0, 1, 1, 2, 2])), np.arange(4)
    val = np.array([False, False, False, False, True, False])
    line = "2 of 3 clients have no validation samples, because other clients train on the same ones"
    assert [*shared_lines(train, image, val)] == [line]
    assert not are_shared(Assignment(np.arange(24), np.repeat(np.arange(2), 12)), np.arange(24))
