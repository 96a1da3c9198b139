"""SVHN's MATLAB files."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from torchvision import datasets

from tests.data.loading import with_any_damage

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8)
DIGITS = [*range(10), 5, 7]


def write(folder: Path, **changes) -> Path:
    """Both files as published: X is height x width x 3 x count, a zero is called 10."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        arrays = {"X": PIXELS.transpose(1, 2, 3, 0), "y": np.array([[d or 10] for d in DIGITS], np.uint8)}
        savemat(folder / f"{part}_32x32.mat", arrays | (changes if part == "train" else {}), do_compression=True)
    return folder


@pytest.fixture
def svhn(tmp_path) -> Path:
    return write(tmp_path / "svhn")


def test_images_and_digits(svhn, load):
    dataset = load("svhn", root=svhn)
    assert (dataset.train_rows, dataset.test_rows, dataset.classes) == (12, 12, 10)
    assert dataset.labels.tolist() == DIGITS * 2
    np.testing.assert_array_equal(dataset.samples[:12], PIXELS.transpose(0, 3, 1, 2))
    assert dataset.mean == (0.4377, 0.4438, 0.4728)
    assert "not the published files" in dataset.warnings[0]


def test_it_reads_what_torchvision_reads(svhn, load, monkeypatch):
    monkeypatch.setattr(datasets.SVHN, "_check_integrity", lambda self: True)
    theirs, ours = datasets.SVHN(svhn, split="test"), load("svhn", root=svhn.parent)
    np.testing.assert_array_equal(ours.samples[12:], theirs.data)
    assert ours.labels[12:].tolist() == theirs.labels.tolist()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"y": np.array([[3]] * 4 + [[11]] + [[1]] * 7, np.uint8)}, "train_32x32.mat, row 4: label 11 is outside"),
        ({"y": np.array([[0]] * 12, np.uint8)}, "row 0: label 0 is outside the class range; 1 to 10"),
        ({"X": PIXELS.transpose(1, 2, 3, 0).astype(np.float32)}, "images hold float32"),
        ({"X": PIXELS[:, :30].transpose(1, 2, 3, 0)}, "images of another size"),
        ({"X": PIXELS[0]}, "expected the arrays X (height x width x 3 x count) and y"),
    ],
)
def test_wrong_arrays(tmp_path, refused, changes, text):
    assert text in refused("svhn", root=write(tmp_path / "svhn", **changes))


def test_files_that_are_not_whole(svhn, refused):
    file = svhn / "test_32x32.mat"
    whole = file.read_bytes()
    for data in (b"", b"hello", whole[: len(whole) // 2]):
        file.write_bytes(data)
        assert "test_32x32.mat: incomplete or damaged MATLAB file" in refused("svhn", root=svhn)
    file.unlink()
    assert "test_32x32.mat missing in" in refused("svhn", root=svhn)


@with_any_damage
def test_any_damage_is_one_line_or_harmless(data, svhn, load_damaged):
    dataset = load_damaged(data, svhn / "train_32x32.mat", "svhn", header=300, root=svhn)
    assert dataset is None or dataset.labels.tolist() == DIGITS * 2
