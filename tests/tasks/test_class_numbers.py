"""Classes as whole numbers (tests/data/reading/test_targets.py tests all forms that data have)."""

import numpy as np
import pytest

from fedbench.tasks.class_numbers import read_classes, rows_of_bits
from fedbench.tasks.targets import TargetError


def test_labels_are_numbered_in_ascending_order():
    found = read_classes(np.array([7, 3, 3]))
    assert (found.values.tolist(), found.classes, found.labels) == ([1, 0, 0], 2, ("3", "7"))


def test_a_row_of_several_labels_is_no_class():
    assert read_classes(np.array([[0, 1], [1, 0]])).values.tolist() == [1, 0]
    with pytest.raises(TargetError, match="several labels, or none") as caught:
        read_classes(np.array([[0, 1], [1, 1]]))
    assert caught.value.row == 1


def test_rows_of_zeros_and_ones():
    assert rows_of_bits(np.array([[0, 1], [2, 1]])).tolist() == [True, False]
    assert not rows_of_bits(np.zeros((2, 3, 3))).any()
