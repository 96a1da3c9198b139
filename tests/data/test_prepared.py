"""A data set is known by what is in it, wherever it lies."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.prepared import PreparedDataset
from fedbench.errors import ConfigError


@pytest.fixture
def digits() -> Dataset:
    return Dataset.load(Config(data={"name": "digits", "mean": [0.25]}).data)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Another machine: its cache is empty, and it does not see the driver's."""

    def move(prepared: PreparedDataset) -> PreparedDataset:
        monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "far"))
        return PreparedDataset(
            tmp_path / "unseen" / prepared.folder.name, prepared.content, prepared.mean, prepared.std
        )

    return move


def test_the_same_machine_finds_the_same_folder_with_the_constants_in_use(digits):
    found = PreparedDataset.of(digits).find()
    assert found.folder == digits.folder
    assert found.mean == (0.25,)


def test_another_machine_has_it_once_it_was_sent(digits, elsewhere):
    here = PreparedDataset.of(digits)
    files = here.files()
    there = elsewhere(here)
    assert there.find() is None
    written = there.copy_here(files)
    assert np.array_equal(written.samples, digits.samples)
    assert np.array_equal(written.targets, digits.targets)
    assert written.mean == (0.25,)
    assert there.find().folder == written.folder
    assert there.copy_here({}).folder == written.folder  # nothing is written twice


def test_a_folder_of_the_same_name_with_other_content_is_another_data_set(digits, elsewhere):
    here = PreparedDataset.of(digits)
    there = elsewhere(PreparedDataset(here.folder, "0" * 12, here.mean, here.std))
    files = here.files()
    with pytest.raises(ConfigError, match="incomplete copy from another machine"):
        there.copy_here(files)
    assert there.find() is None


def test_the_same_rows_in_other_parts_are_another_data_set(elsewhere):
    rows, labels = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    parts = [(rows[:cut], labels[:cut], rows[cut:], labels[cut:]) for cut in (45, 30)]
    first, second = (PreparedDataset.of(Dataset.load(Config(data=part).data)) for part in parts)
    files = first.files()
    there = elsewhere(second)
    PreparedDataset(there.folder, first.content, first.mean, first.std).copy_here(files)
    assert there.find() is None
