"""Features that only test samples tell apart are named."""

import numpy as np

from fedbench.data.unseen import FEW, unseen_features


def test_features_with_other_values_in_the_test_samples_alone():
    rows = FEW + 20
    samples = np.zeros((rows + 2, 4), np.float32)
    samples[rows - 1, 0] = 1  # late, but among those for training
    samples[rows:, :2] = 2
    samples[:rows, 2] = np.nan
    samples[rows:, 2] = np.nan
    lines = [*unseen_features(samples, "abcd", np.arange(rows), np.arange(rows, rows + 2))]
    assert lines == ["1 features have one value in the training part and others in the test part: b"]
    samples[rows, 2] = 0
    (line,) = unseen_features(samples, "abcd", np.arange(rows), np.arange(rows, rows + 2))
    assert line.endswith("the test part: b, c")
    assert [*unseen_features(samples, "abcd", np.arange(0), np.arange(3))] == []
