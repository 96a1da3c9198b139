"""What drawn test samples have alone, and which training samples they equal."""

from collections.abc import Iterator

import numpy as np

from fedbench.data.dataset import Dataset
from fedbench.data.unseen import unseen_features
from fedbench.tasks.class_numbers import first_of


def side_lines(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> Iterator[str]:
    """Lines on features and classes of the test samples alone, and on equal samples on both sides; int64 row numbers.

    Groups of `partition.test_by` are never torn apart where test samples are drawn.
    """
    yield from unseen_features(dataset.samples, dataset.columns, train, test)
    if dataset.classes:
        trains, tests = (np.bincount(dataset.targets[rows], minlength=dataset.classes) for rows in (train, test))
        names = dataset.output_names
        if alone := [names[number] for number in np.flatnonzero((trains == 0) & (tests > 0))]:
            yield f"{len(alone)} of {dataset.classes} classes have no samples in the training part: {first_of(alone)}"
    if dataset.equal is not None:
        first = np.full(len(dataset.targets), -1)
        first[dataset.equal[:, 0]] = dataset.equal[:, 1]
        same = int(((first[test] >= 0) & np.isin(first[test], first[train])).sum())
        if same:
            yield f"{same} of {len(test)} test samples are training samples too, number for number"
