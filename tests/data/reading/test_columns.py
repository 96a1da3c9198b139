"""Columns are rows of items, and arrays whatever holds them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from fedbench.data.reading.columns import arrays_of, items_of_columns
from fedbench.errors import ConfigError


def test_arrays_are_rows():
    x, y, who = np.arange(6).reshape(3, 2), [0, 1, 0], np.array(["a", "b", "a"])
    rows = items_of_columns((x, y, who), "item")
    assert [(own[0].tolist(), *own[1:]) for own in rows] == [([0, 1], 0, "a"), ([2, 3], 1, "b"), ([4, 5], 0, "a")]
    assert items_of_columns([(1, 2), (3, 4)], "item") == [(1, 2), (3, 4)]


def test_columns_of_other_kinds_become_arrays():
    frame = pd.DataFrame({"a": [1.5, 2], "b": pd.array([1, None], "Int64"), "c": [True, False]})
    found, matrix = arrays_of({"samples": frame, "targets": np.eye(2).view(np.matrix)}, "item")
    np.testing.assert_array_equal(found, [[1.5, 1, 1], [2, np.nan, 0]])
    assert type(matrix) is np.ndarray
    for sparse, remedy in ((scipy.sparse.eye(2, format="csr"), "toarray"), (torch.eye(2).to_sparse(), "to_dense")):
        with pytest.raises(ConfigError, match=rf"items: a sparse .*; pass it dense, X\.{remedy}\(\)"):
            arrays_of({"samples": sparse, "targets": [0, 1]}, "item")


def test_whole_numbers_of_a_frame_of_samples_are_numbers():
    frame, targets = pd.DataFrame({"age": [40, 70], "ward": [1, 2]}), pd.DataFrame({"rash": [0, 1], "cough": [1, 1]})
    found, labels = arrays_of({"samples": frame, "targets": targets}, "item")
    assert (found.dtype.kind, labels.dtype.kind) == ("f", "i")
    assert found.tolist() == frame.to_numpy().tolist()
    assert arrays_of({"samples": frame.to_numpy(), "targets": targets}, "item")[0].dtype.kind == "i"
