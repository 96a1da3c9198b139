"""MNIST, Fashion-MNIST, EMNIST: IDX files."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from torchvision import datasets

from fedbench.data.reading.published import file_md5
from tests.data.loading import with_any_damage


@pytest.fixture
def emnist(tmp_path, write_idx) -> Path:
    """EMNIST's files of the split byclass: 62 training and 62 test images; values rise along a column."""
    rising = np.arange(16, dtype=np.uint8).reshape(4, 4)
    for part in ("train", "test"):
        folder = tmp_path / "EMNIST" / "raw"
        write_idx(folder / f"emnist-byclass-{part}-images-idx3-ubyte.gz", np.stack([rising] * 62))
        write_idx(folder / f"emnist-byclass-{part}-labels-idx1-ubyte.gz", np.arange(62, dtype=np.uint8))
    return tmp_path


def test_emnist_has_62_classes_and_stands_upright(emnist, load):
    dataset = load("emnist", root=emnist)
    assert (dataset.classes, dataset.train_rows, dataset.test_rows) == (62, 62, 62)
    assert dataset.class_names[9:12] == ("9", "A", "B")
    assert dataset.class_names[61] == "z"
    assert dataset.labels[:62].tolist() == list(range(62))
    assert dataset.samples[0, 0].tolist() == np.arange(16).reshape(4, 4).T.tolist()
    assert dataset.mean == (0.1736,)


def test_mnist_files_with_the_published_checksums_need_no_note(mnist_folder, load, monkeypatch):
    sums = [(name, md5) for name, md5 in datasets.MNIST.resources]
    monkeypatch.setattr(datasets.MNIST, "resources", [(name, file_md5(mnist_folder / name)) for name, _ in sums])
    dataset = load("mnist", root=mnist_folder)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (20, 10, (1, 28, 28))
    assert dataset.labels[:10].tolist() == list(range(10))
    assert dataset.warnings == ()
    assert dataset.official
    assert dataset.class_names == tuple("0123456789")


def test_real_subsets_are_read_with_a_note(shared, load):
    dataset = load("mnist", root=shared / "mnist")
    assert (dataset.train_rows, dataset.test_rows) == (10_000, 10_000)
    assert np.bincount(dataset.labels[10_000:]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert "MD5 differs): train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz; a subset" in dataset.warnings[0]
    assert not dataset.official
    assert load("fmnist", root=shared / "fmnist").class_names[9] == "Ankle boot"


def test_real_pixels_are_those_of_the_file(shared, load):
    dataset = load("mnist", root=shared / "mnist")
    data = gzip.decompress((shared / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    expected = np.frombuffer(data, np.uint8, offset=16).reshape(-1, 28, 28)
    np.testing.assert_array_equal(dataset.samples[10_000:, 0], expected)


def test_broken_files(mnist_folder, write_idx, refused):
    images, labels = (mnist_folder / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    whole, sound = images.read_bytes(), labels.read_bytes()

    def said(file: Path, data: bytes) -> str:
        file.write_bytes(data)
        return refused("mnist", root=mnist_folder)

    assert "train-images-idx3-ubyte.gz: damaged or incomplete" in said(images, whole[:100])
    assert "train-images-idx3-ubyte.gz: " in said(images, b"")
    assert "not an IDX file of 3-dimensional bytes" in said(images, sound)
    images.write_bytes(whole)
    write_idx(labels, np.arange(19, dtype=np.uint8) % 10)
    assert "19 labels, but 20 images" in refused("mnist", root=mnist_folder)
    write_idx(labels, np.array([3] * 7 + [11] + [2] * 12, np.uint8))
    assert "train-labels-idx1-ubyte.gz, row 7: label 11 is outside" in refused("mnist", root=mnist_folder)
    labels.write_bytes(sound)
    images.unlink()
    plain = write_idx(images.with_suffix(""), np.zeros((20, 28, 28), np.uint8))
    data = plain.read_bytes()
    assert "20 rows announced, but there are 19" in said(plain, data[:-784])
    assert "20 rows announced, but there are more" in said(plain, data + b"0")
    huge = bytes((0, 0, 8, 3)) + np.array([20, 2**31, 2**31], ">u4").tobytes()
    assert "announces 20 x 2147483648" in said(plain, huge)


def test_parts_with_images_of_different_sizes(mnist_folder, write_idx, refused):
    write_idx(mnist_folder / "t10k-images-idx3-ubyte.gz", np.zeros((10, 27, 28), np.uint8))
    assert "images of a different size" in refused("mnist", root=mnist_folder)


@with_any_damage
def test_any_damage_is_one_line_or_harmless(data, mnist_folder, load_damaged):
    file = mnist_folder / data.draw(st.sampled_from(sorted(path.name for path in mnist_folder.iterdir())))
    dataset = load_damaged(data, file, "mnist", root=mnist_folder)
    assert dataset is None or dataset.labels.tolist() == [*(i % 10 for i in range(20)), *range(10)]
