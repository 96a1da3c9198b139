"""Features whose values only test samples have."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedbench.tasks.class_numbers import first_of

FEW = 1000
"""Training samples by which most features are seen to vary."""


def unseen_features(samples: np.ndarray, columns: Sequence[str], train: np.ndarray, test: np.ndarray) -> Iterator[str]:
    """Names features that only the test rows tell apart."""
    if not columns or not len(train) or not len(test):
        return
    numbers = np.arange(len(columns))
    for rows in (train[:FEW], train):  # most vary among few samples
        numbers = numbers[_constant(samples, rows, numbers, samples[train[0]])]
    names = [columns[number] for number in numbers[~_constant(samples, test, numbers, samples[train[0]])]]
    if names:
        have = "features have one value in the training part and others in the test part"
        yield f"{len(names)} {have}: {first_of(names)}"


def _constant(samples: np.ndarray, rows: np.ndarray, numbers: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Whether these rows have the values of `first` at these places, bool [places]; NaN is a value too."""
    values = samples[np.ix_(rows, numbers)]
    return np.asarray(((values == first[numbers]) | (np.isnan(values) & np.isnan(first[numbers]))).all(0))
