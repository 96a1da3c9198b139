"""Data sets are loaded once and shared."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.description import Decision
from tests.data.loading import load


def test_digits_are_the_default_and_have_the_published_counts():
    dataset = Dataset.load(Config().data)
    assert (dataset.name, dataset.shape, dataset.classes) == ("digits", (1, 8, 8), 10)
    assert (dataset.train_rows, dataset.test_rows) == (1438, 359)
    assert dataset.labels.dtype == np.int64
    assert dataset.samples.dtype == np.uint8


def test_mean_and_std_are_those_of_the_train_part():
    dataset = load("digits")
    train = dataset.samples[: dataset.train_rows] / 255
    assert np.allclose([dataset.mean[0], dataset.std[0]], [train.mean(), train.std()], rtol=1e-12)


def test_a_data_set_travels_as_its_folder():
    dataset = load("digits")
    text = pickle.dumps(dataset)
    again = pickle.loads(text)
    assert len(text) < 1000
    assert isinstance(again.samples, np.memmap)
    np.testing.assert_array_equal(again.samples, dataset.samples)


def test_it_travels_with_the_constants_that_were_asked_for():
    dataset = load("digits", mean=[0.5], std=[0.25])
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
    assert replace(load("digits"), **change).content != load("digits").content


def test_a_decision_belongs_to_the_content_by_what_it_decides():
    first, other = (Decision("samples", "x", "certain", "data.label", value) for value in ("first", "last"))
    read = replace(load("digits"), decisions=(first,)).content
    assert len({load("digits").content, read, replace(load("digits"), decisions=(other,)).content}) == 3
    assert replace(load("digits"), decisions=(replace(first, how="given", said="y"),)).content == read
    assert replace(load("digits"), decisions=(replace(first, key="", value=None),)).content == load("digits").content


def test_images_become_a_tensor_without_a_copy_and_without_a_warning():
    dataset = load("digits")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = torch.from_numpy(dataset.samples)
    assert tensor.data_ptr() == dataset.samples.ctypes.data
