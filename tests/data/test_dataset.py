"""Datasets are loaded once and shared; splits gather what was asked for, normalised."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.split import Split, scale_and_shift


def digits() -> Dataset:
    return Dataset.load(Config().data)


def split_of(dataset: Dataset, rows: list[int], **options) -> Split:
    where = torch.tensor(rows)
    labels = torch.from_numpy(dataset.labels)[where]
    return Split(torch.from_numpy(dataset.samples), where, labels, scale_and_shift(dataset), (0, 1), **options)


def test_digits_are_the_default_and_have_the_published_counts():
    dataset = digits()
    assert (dataset.name, dataset.shape, dataset.classes) == ("digits", (1, 8, 8), 10)
    assert (dataset.train_rows, dataset.test_rows) == (1438, 359)
    assert dataset.labels.dtype == np.int64
    assert dataset.samples.dtype == np.uint8


def test_every_fifth_digit_is_a_test_image():
    from sklearn.datasets import load_digits

    source, dataset = load_digits(), digits()
    np.testing.assert_array_equal(dataset.labels[dataset.train_rows :], source.target[4::5])
    np.testing.assert_array_equal(dataset.samples[dataset.train_rows :, 0], source.images[4::5] * 15)


def test_mean_and_std_are_those_of_the_train_part():
    dataset = digits()
    train = dataset.samples[: dataset.train_rows] / 255
    assert np.allclose([dataset.mean[0], dataset.std[0]], [train.mean(), train.std()], rtol=1e-12)


def test_a_batch_is_the_normalised_images_and_labels_at_these_positions():
    dataset = digits()
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
    dataset = digits()
    before = dataset.samples[:3].copy()
    split_of(dataset, [0, 1, 2]).batch(torch.arange(3))[0].zero_()
    np.testing.assert_array_equal(dataset.samples[:3], before)


def test_a_data_set_travels_as_its_folder():
    dataset = digits()
    text = pickle.dumps(dataset)
    again = pickle.loads(text)
    assert len(text) < 1000
    assert isinstance(again.samples, np.memmap)
    np.testing.assert_array_equal(again.samples, dataset.samples)


def test_it_travels_with_the_constants_that_were_asked_for():
    dataset = Dataset.load(Config(data={"mean": [0.5], "std": [0.25]}).data)
    again = pickle.loads(pickle.dumps(dataset))
    assert (again.mean, again.std) == ((0.5,), (0.25,))


@pytest.mark.parametrize(
    "change",
    [
        {"train_rows": 1437},
        {"val_rows": 100},
        {"kind": "feature"},
        {"task": "regression"},
        {"classes": 11},
        {"class_names": tuple("abcdefghij")},
        {"class_labels": tuple("1234567890")},
        {"domain_names": ("a",)},
        {"samples": np.zeros((1797, 1, 64), np.uint8)},
        {"samples": np.zeros((1797, 1, 8, 8), np.int8)},
        {"targets": np.zeros(1797, np.int32)},
    ],
    ids=lambda change: " ".join(change),
)
def test_what_data_are_belongs_to_their_content(change):
    assert replace(digits(), **change).content != digits().content


def test_images_become_a_tensor_without_a_copy_and_without_a_warning():
    dataset = digits()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = torch.from_numpy(dataset.samples)
    assert tensor.data_ptr() == dataset.samples.ctypes.data
