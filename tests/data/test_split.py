"""Splits gather batches of a data set, normalised."""

import numpy as np
import torch

from fedbench.data import Dataset
from fedbench.data.split import Split, scale_and_shift
from tests.data.loading import load


def split_of(dataset: Dataset, rows: list[int], **options) -> Split:
    where = torch.tensor(rows)
    labels = torch.from_numpy(dataset.labels)[where]
    return Split(torch.from_numpy(dataset.samples), where, labels, scale_and_shift(dataset), (0, 1), **options)


def test_a_batch_is_the_normalised_images_and_labels_at_these_positions():
    dataset = load("digits")
    x, y = split_of(dataset, [5, 900, 33]).batch(torch.tensor([2, 0]))
    expected = (dataset.samples[[33, 5]] / 255 - dataset.mean[0]) / dataset.std[0]
    torch.testing.assert_close(x, torch.tensor(expected, dtype=torch.float32))
    assert y.tolist() == dataset.labels[[33, 5]].tolist()


def test_memory_format_and_precision_are_the_splits_and_change_no_number():
    images = torch.randint(0, 256, (9, 3, 4, 4), dtype=torch.uint8)
    factors, rows = (torch.rand(3, 1, 1), torch.rand(3, 1, 1)), torch.arange(9)
    plain, last = (
        Split(images, rows, rows, factors, (), memory_format=f).batch(rows)[0]
        for f in (torch.contiguous_format, torch.channels_last)
    )
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, last)
    double = Split(images, rows, rows, factors, (), dtype=torch.float64).batch(rows)[0]
    torch.testing.assert_close(double.float(), plain)
    assert double.dtype == torch.float64


def test_a_split_changes_nothing_in_the_data_set():
    dataset = load("digits")
    before = dataset.samples[:3].copy()
    split_of(dataset, [0, 1, 2]).batch(torch.arange(3))[0].zero_()
    np.testing.assert_array_equal(dataset.samples[:3], before)
