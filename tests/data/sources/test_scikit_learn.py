"""The sets that come with scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits

from fedbench.data.reading.parts import is_test_row
from fedbench.errors import ConfigError
from tests.data.loading import load


def test_digits_are_those_of_the_library_with_every_fifth_image_for_testing():
    dataset = load("digits")
    images, labels = load_digits(return_X_y=True)
    test = np.array([is_test_row(row) for row in range(len(labels))])
    assert (dataset.samples.shape, dataset.classes, dataset.train_rows) == ((1797, 1, 8, 8), 10, int((~test).sum()))
    np.testing.assert_array_equal(dataset.targets, np.concatenate([labels[~test], labels[test]]))
    pixels = np.concatenate([images[~test], images[test]]).reshape(-1, 1, 8, 8)
    np.testing.assert_array_equal(dataset.samples, pixels * 15)


def test_features_of_diabetes_are_those_of_the_library_and_targets_are_standardised():
    features, progress = load_diabetes(return_X_y=True, scaled=False)
    dataset, test = load("diabetes"), np.arange(442) % 5 == 4
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.outputs) == (354, 88, (10,), 1)
    assert (dataset.task, dataset.classes) == ("regression", 0)
    np.testing.assert_array_equal(dataset.samples[:354], features[~test].astype(np.float32))
    assert dataset.targets[:354].mean() == pytest.approx(0, abs=1e-6)
    assert dataset.targets[:354].std() == pytest.approx(1, abs=1e-6)
    assert np.corrcoef(dataset.targets[354:], progress[test])[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(dataset.mean, features[~test].mean(0), rtol=1e-6)


@pytest.mark.parametrize(("name", "comes"), [("digits", "come"), ("diabetes", "comes")])
def test_they_need_no_folder(name, comes):
    with pytest.raises(ConfigError, match=f"{name} {comes} with scikit-learn"):
        load(name, root="/tmp")


def test_diabetes_has_no_labels():
    with pytest.raises(ConfigError, match=r"its targets are numbers.* take the partition iid, domain, natural or file"):
        _ = load("diabetes").labels
