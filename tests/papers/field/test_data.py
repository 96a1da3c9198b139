"""Data sets that are put together of others."""

import gzip
import io
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedbench.errors import ConfigError
from fedbench_papers.field.data import affairs, mnist_usps, pneumonia, small_cifar10


def write_idx(path, array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(head + array.astype(np.uint8).tobytes())


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(0)
    for name, side, parts in (("mnist", 28, ("train", "t10k")), ("usps", 16, ("train", "test"))):
        (tmp_path / name).mkdir()
        for part in parts:
            write_idx(tmp_path / name / f"{part}-images-idx3-ubyte", rng.integers(0, 256, (6, side, side)))
            write_idx(tmp_path / name / f"{part}-labels-idx1-ubyte", np.arange(6))
    return tmp_path


def test_digits_of_two_origins_have_one_size_and_say_where_they_are_from(digits):
    train, test = mnist_usps(str(digits / "mnist"), str(digits / "usps"))
    for images, labels, domains in (train, test):
        assert images.shape == (12, 28, 28)
        assert images.dtype == np.uint8
        assert labels.tolist() == [*range(6), *range(6)]
        assert domains == ["MNIST"] * 6 + ["USPS"] * 6
        assert not images[6:, :4].any()
        assert images[6:, 4:24, 4:24].any()


def test_missing_digits_are_named(digits):
    (digits / "usps" / "test-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ConfigError, match="test-labels-idx1-ubyte"):
        mnist_usps(str(digits / "mnist"), str(digits / "usps"))


def test_pixels_of_small_photographs_are_means_of_four(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (26, 32, 32, 3), np.uint8)
    for part, rows in (("train", range(20)), ("test", range(20, 26))):
        images = [{"bytes": as_png(pixels[row]), "path": f"{row}.png"} for row in rows]
        table = pa.table({"img": images, "label": [row % 10 for row in rows]})
        pq.write_table(table, tmp_path / f"{part}-00000-of-00001.parquet")
    (train, labels), (test, _) = small_cifar10(str(tmp_path))
    assert (train.shape, train.dtype, labels.tolist()) == ((20, 16, 16, 3), np.uint8, [*range(10)] * 2)
    assert np.array_equal(test[:, 0, 0], pixels[20:, :2, :2].mean((1, 2)).round())


def as_png(pixels: np.ndarray) -> bytes:
    Image.fromarray(pixels).save(file := io.BytesIO(), "png")
    return file.getvalue()


def test_few_pictures_show_pneumonia(tmp_path):
    images = {part: np.zeros((size, 28, 28), np.uint8) for part, size in (("train", 80), ("val", 20), ("test", 40))}
    labels = {part: np.tile([[0], [1]], (len(array) // 2, 1)) for part, array in images.items()}
    named = {f"{part}_images": array for part, array in images.items()}
    np.savez(tmp_path / "pneumoniamnist.npz", **named, **{f"{part}_labels": array for part, array in labels.items()})
    (train, train_labels), (test, test_labels) = pneumonia(str(tmp_path), share=0.2)
    assert (len(train), int(train_labels.sum())) == (62, 12)
    assert (len(test), int(test_labels.sum())) == (25, 5)
    with pytest.raises(ConfigError, match=r"pneumoniamnist\.npz is expected here"):
        pneumonia(str(tmp_path / "none"))


def test_the_survey_has_a_row_per_woman_in_groups_of_a_few():
    pytest.importorskip("statsmodels")
    table = affairs(least=30, most=50)
    sizes = table.groupby("couple").size()
    assert sizes.between(30, 50).all()
    assert 0.2 < table["affair"].mean() < 0.45
    assert "affairs" not in table
    assert affairs(least=30, most=50).equals(table)
