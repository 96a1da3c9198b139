"""Published sets have normalisation constants with a source."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset, importing
from fedbench.data.sources import published_names, published_of
from fedbench.data.split import scale_and_shift
from fedbench.errors import ConfigError


def test_every_published_set_has_constants_with_their_source():
    for constants in (published_of(name).constants for name in published_names()):
        assert constants.source
        assert (constants.mean is None) == (constants.std is None)
        for value in (*(constants.mean or ()), *(constants.std or ())):
            assert 0 < value < 1


@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_constants_are_those_of_real_images(shared, load, name):
    importing.import_files(name, shared / name)
    dataset = load(name)
    train = dataset.samples[: dataset.train_rows] / 255
    assert dataset.mean == published_of(name).constants.mean
    assert [train.mean(), train.std()] == pytest.approx([dataset.mean[0], dataset.std[0]], abs=0.005)


def test_constants_of_cifar_are_those_of_real_images(shared, load):
    for name in ("cifar10", "cifar100"):
        dataset = load(f"parquet:{shared / name}")
        assert dataset.mean == pytest.approx(published_of(name).constants.mean, abs=0.015)
        assert dataset.std == pytest.approx(published_of(name).constants.std, abs=0.015)


def test_others_take_their_place(load):
    dataset = load("digits", mean=[0.5], std=[0.25])
    assert (dataset.mean, dataset.std) == ((0.5,), (0.25,))
    scale, shift = scale_and_shift(dataset)
    np.testing.assert_allclose([float(scale), float(shift)], [4 / 255, -2])
    assert load("digits", mean=[0.5]).std == load("digits").std
    assert load("digits", mean=[0.5]).folder == load("digits").folder, "nothing is decoded again"


def test_one_value_stands_for_all_channels(shared, load):
    assert load(f"parquet:{shared / 'cifar100'}", std=[0.5]).std == (0.5, 0.5, 0.5)
    with pytest.raises(ConfigError, match=r"data\.mean = \[0\.5, 0\.5\]: .* has 3 channels"):
        Dataset.load(Config(data={"name": f"parquet:{shared / 'cifar100'}", "mean": [0.5, 0.5]}).data)
    with pytest.raises(ConfigError, match=r"data\.std"):
        Config(data={"std": [0.0]})
