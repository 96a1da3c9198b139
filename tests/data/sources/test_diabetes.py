"""The diabetes data: features and a number to learn, from scikit-learn."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.errors import ConfigError


def load(**data) -> Dataset:
    return Dataset.load(Config(data={"name": "diabetes", **data}).data)


def test_features_are_those_of_the_library_and_targets_are_standardised():
    from sklearn.datasets import load_diabetes

    features, progress = load_diabetes(return_X_y=True, scaled=False)
    dataset, test = load(), np.arange(442) % 5 == 4
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.outputs) == (354, 88, (10,), 1)
    assert (dataset.task, dataset.classes) == ("regression", 0)
    np.testing.assert_array_equal(dataset.samples[:354], features[~test].astype(np.float32))
    assert dataset.targets[:354].mean() == pytest.approx(0, abs=1e-6)
    assert dataset.targets[:354].std() == pytest.approx(1, abs=1e-6)
    assert np.corrcoef(dataset.targets[354:], progress[test])[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(dataset.mean, features[~test].mean(0), rtol=1e-6)


def test_it_needs_no_folder():
    with pytest.raises(ConfigError, match="comes with scikit-learn"):
        load(root="/tmp")


def test_there_are_no_labels():
    with pytest.raises(ConfigError, match=r"its targets are numbers.* take the partition iid, domain, natural or file"):
        _ = load().labels
