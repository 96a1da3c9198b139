"""Any map-style data set by dotted name."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from fedbench.config import Config
from fedbench.data import Dataset, Split
from fedbench.errors import ConfigError


class Items(list):
    """A map-style data set."""

    classes = ("cat", "dog")


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module of a user, with one factory."""
    module = ModuleType("mine")
    module.make = lambda: (toy(10), toy(4))
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


def toy(count: int, image=None) -> Items:
    return Items((np.full((4, 5), row, np.uint8) if image is None else image, row % 2) for row in range(count))


def load(**options) -> Dataset:
    return Dataset.load(Config(data={"name": "mine:make", **options}).data)


def refused(**options) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_factory_of_a_pair(mine):
    dataset = load()
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (10, 4, (1, 4, 5))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.samples[:, 0, 0, 0].tolist() == [*range(10), *range(4)]


def test_a_factory_by_part_with_options(mine):
    mine.make = lambda train, size=3: toy(size if train else 2)
    assert load(size=7).train_rows == 7
    assert "unknown key data.sise" in refused(sise=7)
    assert "did you mean size or" in refused(sise=7)


def test_changed_data_are_read_again(mine):
    assert load().labels.tolist()[0] == 0
    mine.make = lambda: (Items(reversed(toy(10))), toy(4))
    assert load().labels.tolist()[0] == 1


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (Image.new("L", (5, 4)), (1, 4, 5)),
        (Image.new("RGB", (5, 4)), (3, 4, 5)),
        (np.zeros((4, 5, 3), np.uint8), (3, 4, 5)),
        (torch.zeros(2, 4, 5), (2, 4, 5)),
        (torch.zeros(3, 4, 5, dtype=torch.uint8), (3, 4, 5)),
    ],
)
def test_kinds_of_images(mine, image, shape):
    mine.make = lambda: (toy(4, image), toy(2, image))
    assert load().shape == shape


def test_float_tensors_are_rounded_to_bytes(mine):
    mine.make = lambda: (toy(4, torch.full((1, 2, 2), 0.5)), toy(2, torch.ones(1, 2, 2)))
    assert load().samples[[0, 5]].max(axis=(1, 2, 3)).tolist() == [128, 255]


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (torch.full((1, 2, 2), 1.5), "train item 0: values outside [0, 1]"),
        (torch.full((1, 2, 2), float("nan")), "train item 0: values outside [0, 1]"),
        (np.full((4, 5), np.nan), "train item 0: values that are not finite"),
        (np.zeros((4, 5), bool), "train item 0: the image is a bool array [4, 5]"),
        (torch.zeros(4, 5, dtype=torch.uint8), "a torch.uint8 tensor [4, 5]"),
        ("file.png", "train item 0: the image is a str"),
        (Image.new("F", (5, 4)), "train item 0: pixels of kind F"),
    ],
)
def test_images_of_the_wrong_kind(mine, image, text):
    mine.make = lambda: (toy(4, image), toy(2, image))
    assert text in refused()


@pytest.mark.parametrize(
    ("label", "text"), [(2, "outside the class range; 0 to 1"), (None, "missing"), (0.5, "no whole")]
)
def test_labels(mine, label, text):
    bad = toy(50)
    bad[33] = (bad[33][0], label)
    mine.make = lambda: (bad, toy(2))
    assert "data mine:make, train item 33: " in refused()
    assert text in refused()


def test_random_transforms_are_refused(mine):
    class Noisy(Items):
        def __getitem__(self, index):
            return np.random.default_rng().integers(0, 256, (4, 4), np.uint8), 0

    mine.make = lambda: (Noisy(range(5)), toy(2))
    assert "train item 0: another sample when asked again" in refused()


def test_factories_that_are_none(mine):
    mine.make = lambda: 3
    assert "factory() that returns (train, test), is expected" in refused()
    mine.make = lambda: (toy(3), toy(0))
    assert "3 training and 0 test items" in refused()
    mine.make = lambda: 1 / 0
    assert "the factory failed (ZeroDivisionError: division by zero)" in refused()
    mine.make = 3
    assert "not a function" in refused()
    with pytest.raises(ConfigError, match=r"module mine has no mak; did you mean make\?"):
        Dataset.load(Config(data="mine:mak").data)
    with pytest.raises(ConfigError, match="module nowhere cannot be imported"):
        Dataset.load(Config(data="nowhere:make").data)


def test_items_with_a_domain(mine):
    class InDomains(Items):
        domains = ("photo", "sketch")

    def items(count, last=0):
        return InDomains(
            (np.full((4, 5), row, np.uint8), row % 2, row // 2 % 2 if row else last) for row in range(count)
        )

    mine.make = lambda: (items(8), items(4))
    dataset = load()
    assert dataset.domain_names == ("photo", "sketch")
    assert dataset.domains.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]
    mine.make = lambda: (items(8), items(4, last=2))
    assert "test item 0: domain 2; a number from 0 to 1 is expected" in refused()


class Numbers(list):
    """A data set without classes."""


def features(count: int, target=lambda row: row / 2) -> Numbers:
    return Numbers((np.arange(6, dtype=np.float64).reshape(2, 3) + row, target(row)) for row in range(count))


def test_floats_are_features_and_float_targets_make_a_regression(mine):
    mine.make = lambda: (features(5), features(3))
    dataset = load()
    assert (dataset.task, dataset.shape, dataset.outputs, dataset.classes) == ("regression", (2, 3), 1, 0)
    assert dataset.samples.dtype == dataset.targets.dtype == np.float32
    assert dataset.targets.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 0.0, 0.5, 1.0]
    samples = torch.from_numpy(dataset.samples)
    x, y = Split(samples, torch.arange(5), torch.zeros(5), dataset.scale_and_shift(), ()).batch(torch.arange(5))
    torch.testing.assert_close(x.transpose(0, 1).reshape(2, -1).mean(1), torch.zeros(2), atol=1e-6, rtol=0)
    assert y.shape == (5,)


def test_a_target_may_be_several_numbers(mine):
    mine.make = lambda: (features(5, lambda row: torch.tensor([row, 1.0])), features(3, lambda row: [row, 0.5]))
    dataset = load()
    assert (dataset.targets.shape, dataset.outputs) == ((8, 2), 2)
    mine.make = lambda: (features(5, lambda row: [0.5] * (1 + row // 4)), features(3, lambda row: [0.5]))
    assert "train item 4: a target of shape [2], the first is [1]" in refused()


def test_whole_numbers_are_tokens_and_stay_as_they_are(mine):
    mine.make = lambda: (Items((np.arange(7) + row, row % 2) for row in range(4)), Items([(np.arange(7), 1)]))
    dataset = load()
    assert (dataset.task, dataset.shape, dataset.classes, dataset.mean) == ("classification", (7,), 2, ())
    split = Split(torch.from_numpy(dataset.samples), torch.arange(4), torch.zeros(4), dataset.scale_and_shift(), ())
    assert torch.equal(split.batch(torch.tensor([2]))[0], torch.arange(2, 9)[None])
    assert "data.mean = [0.5]: mine:make holds whole numbers, which stay as they are" in refused(mean=[0.5])
