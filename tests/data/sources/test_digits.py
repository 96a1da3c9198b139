"""The set that ships with scikit-learn."""

import numpy as np
from sklearn.datasets import load_digits

from fedbench.data.reading.images import is_test_row


def test_it_is_scikit_learns_with_every_fifth_image_for_testing(load):
    dataset = load("digits")
    images, labels = load_digits(return_X_y=True)
    test = np.array([is_test_row(row) for row in range(len(labels))])
    assert (dataset.samples.shape, dataset.classes, dataset.train_rows) == ((1797, 1, 8, 8), 10, int((~test).sum()))
    np.testing.assert_array_equal(dataset.targets, np.concatenate([labels[~test], labels[test]]))
    pixels = np.concatenate([images[~test], images[test]]).reshape(-1, 1, 8, 8)
    scale = dataset.samples.max() / pixels.max()
    np.testing.assert_array_equal(dataset.samples, np.rint(pixels * scale))
