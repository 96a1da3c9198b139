"""MedMNIST's .npz files."""

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedbench.data import importing
from fedbench.data.reading.published import Download, file_md5
from fedbench.data.sources.medmnist import PUBLISHED
from tests.data.loading import with_any_damage

COUNTS = {"train": 22, "val": 11, "test": 15}


def arrays() -> dict[str, np.ndarray]:
    """As published: images [n, 28, 28] and labels [n, 1], both uint8."""
    rng, found = np.random.default_rng(0), {}
    for part, count in COUNTS.items():
        found[f"{part}_images"] = rng.integers(0, 256, (count, 28, 28), np.uint8)
        found[f"{part}_labels"] = (np.arange(count, dtype=np.uint8) % 11)[:, None]
    return found


@pytest.fixture
def organ(tmp_path) -> Path:
    np.savez_compressed(tmp_path / "organamnist.npz", **arrays())
    return tmp_path


def test_the_validation_part_is_joined_to_the_training_part(organ, load):
    dataset = load("organamnist", root=organ)
    assert (dataset.train_rows, dataset.test_rows, dataset.classes) == (33, 15, 11)
    assert dataset.labels.tolist() == [i % 11 for count in (22, 11, 15) for i in range(count)]
    np.testing.assert_array_equal(dataset.samples[22:33, 0], arrays()["val_images"])
    assert dataset.class_names[1] == "femur-left"
    assert (dataset.mean, dataset.std) == ((0.5,), (0.5,))


def test_or_left_out(organ, load):
    dataset = load("organamnist", root=organ, join_val=False)
    assert (dataset.train_rows, dataset.test_rows) == (22, 15)
    np.testing.assert_array_equal(dataset.samples[22:, 0], arrays()["test_images"])


def test_a_real_file_of_the_same_format(shared, tmp_path, load):
    (tmp_path / "organcmnist.npz").symlink_to(shared / "medmnist" / "pneumoniamnist.npz")
    dataset = load("organcmnist", root=tmp_path)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (2698, 468, (1, 28, 28))
    assert np.bincount(dataset.labels[2698:]).tolist() == [234, 234]
    assert "not the published files (MD5 differs): organcmnist.npz" in dataset.warnings[0]


def test_the_file_is_taken_as_it_is_though_it_is_a_zip_archive_too(organ, load, tmp_path):
    for path in (organ, organ / "organamnist.npz"):
        importing.import_files("organamnist", path)
        assert load("organamnist").train_rows == 33
    shutil.make_archive(str(tmp_path / "packed" / "organs"), "zip", organ, "organamnist.npz")
    importing.import_files("organamnist", tmp_path / "packed")
    assert load("organamnist").test_rows == 15


def test_it_is_downloaded_as_it_is(organ, load, monkeypatch, tmp_path, server):
    file = organ / "organamnist.npz"
    fetched = (Download((f"{server}{file.relative_to(tmp_path)}",), file_md5(file)),)
    monkeypatch.setitem(PUBLISHED, "organamnist", replace(PUBLISHED["organamnist"], downloads=lambda: fetched))
    assert load("organamnist").train_rows == 33


@pytest.mark.parametrize(
    ("key", "array", "text"),
    [
        ("val_labels", np.full((11, 1), 11, np.uint8), "val part, row 0: label 11 is outside the class range; 0 to 10"),
        ("test_labels", np.zeros((15, 14), np.uint8), "test part: labels of shape 15 x 14 for 15 images"),
        ("train_images", np.zeros((22, 28, 28), np.float32), "train part: images hold float32"),
        ("test_images", np.zeros((15, 64, 64), np.uint8), "the parts hold images of different sizes"),
        ("val_images", np.array([object()] * 11), "incomplete or damaged .npz file (Object arrays"),
    ],
)
def test_wrong_arrays(tmp_path, refused, key, array, text):
    np.savez_compressed(tmp_path / "organamnist.npz", **(arrays() | {key: array}), allow_pickle=True)
    assert text in refused("organamnist", root=tmp_path)


def test_a_missing_array(tmp_path, refused):
    found = arrays()
    del found["val_labels"]
    np.savez(tmp_path / "organamnist.npz", **found)
    assert "organamnist.npz: no array val_labels in it" in refused("organamnist", root=tmp_path)


def test_files_that_are_no_npz(organ, refused):
    file = organ / "organamnist.npz"
    whole = file.read_bytes()
    for data in (b"", b"hello", whole[:200], whole[:-30]):
        file.write_bytes(data)
        assert "organamnist.npz: incomplete or damaged .npz file" in refused("organamnist", root=organ)
    with zipfile.ZipFile(file, "w") as archive:
        for name in arrays():
            archive.writestr(f"{name}.npy", b"hello")
    assert "organamnist.npz" in refused("organamnist", root=organ)


@with_any_damage
def test_any_damage_is_one_line_or_harmless(data, organ, load_damaged):
    dataset = load_damaged(data, organ / "organamnist.npz", "organamnist", root=organ)
    assert dataset is None or dataset.labels.tolist() == [i % 11 for count in (22, 11, 15) for i in range(count)]
