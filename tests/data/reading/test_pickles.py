"""Arrays out of pickles that run nothing."""

import io
import os
import pickle

import numpy as np
import pytest

from fedbench.data.reading.pickles import load_arrays


def loaded(value, protocol: int = 4):
    return load_arrays(io.BytesIO(pickle.dumps(value, protocol)))


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=">i2").reshape(3, 2),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["ab", "c"]),
        np.array([True, False]),
        np.zeros((0, 3), np.uint8),
        np.float64(0.5),
        np.int64(-3),
    ],
    ids=lambda own: f"{own.dtype}{own.shape}",
)
def test_arrays_are_as_numpy_reads_them(array, protocol):
    found = loaded({"x": [array, (1, "a", None)]}, protocol)["x"]
    np.testing.assert_array_equal(found[0], array)
    assert (found[0].dtype, found[0].shape, found[1]) == (array.dtype, array.shape, (1, "a", None))


def test_arrays_of_an_older_numpy_are_read():
    older = pickle.dumps(np.arange(3), 3).replace(b"numpy._core.", b"numpy.core.")
    assert load_arrays(io.BytesIO(older)).tolist() == [0, 1, 2]


def test_arrays_of_objects_hold_containers():
    pairs = np.array([([1, 2], 2), ([3, 4], 1)], dtype=object)
    found = loaded(pairs)
    assert found.shape == (2, 2)
    assert found.tolist() == [[[1, 2], 2], [[3, 4], 1]]


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("value", [Runs(), [Runs()], {"x": Runs()}, np.array([Runs()], dtype=object)])
def test_code_is_refused_and_not_run(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=r"it calls (posix|nt)\.system, which may be code"):
        loaded(value)
    assert not list(tmp_path.iterdir())


def test_sizes_and_types_are_checked():
    whole = pickle.dumps(np.arange(4, dtype=np.int64), 4)
    for broken in (whole.replace(b"K\x04\x85", b"K\x05\x85"), whole.replace(b"i8", b"O8"), whole[:-20]):
        assert broken != whole
        with pytest.raises(pickle.UnpicklingError):
            load_arrays(io.BytesIO(broken))
    with pytest.raises(pickle.UnpicklingError, match="an array of type M8"):
        loaded(np.array(["2020-01-01"], dtype="M8[D]"))
