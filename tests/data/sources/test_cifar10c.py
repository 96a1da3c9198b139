"""CIFAR-10-C's .npy files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fedbench.data.sources.cifar10c import COMMON_CORRUPTIONS
from tests.data.loading import with_any_damage

EACH = 20
LABELS = np.arange(EACH) % 10


@pytest.fixture
def corrupted(tmp_path) -> Path:
    """Twenty pictures, five severities; a pixel says type, severity and picture."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    for number, name in enumerate((*COMMON_CORRUPTIONS, "spatter")):
        images = np.zeros((5 * EACH, 32, 32, 3), np.uint8)
        images[:, 0, 0, 0], images[:, 0, 0, 1] = number, np.repeat(np.arange(1, 6), EACH)
        images[:, 0, 0, 2] = np.tile(np.arange(EACH), 5)
        np.save(folder / f"{name}.npy", images)
    return folder


def test_each_type_is_a_domain_and_every_fifth_picture_a_test_image(corrupted, load):
    dataset = load("cifar10c", root=corrupted)
    assert dataset.domain_names == COMMON_CORRUPTIONS
    assert (dataset.train_rows, dataset.test_rows) == (15 * 16, 15 * 4)
    pixel = dataset.samples[:, :, 0, 0]
    assert (pixel[:, 0] == dataset.domains).all()
    assert set(pixel[:, 1]) == {5}
    assert (LABELS[pixel[:, 2]] == dataset.labels).all()
    assert set(pixel[dataset.train_rows :, 2]) == {4, 9, 14, 19}
    assert not set(pixel[: dataset.train_rows, 2]) & {4, 9, 14, 19}
    assert np.bincount(dataset.domains[: dataset.train_rows]).tolist() == [16] * 15
    assert dataset.mean == (0.4914, 0.4822, 0.4465)


def test_severity_and_types_are_options(corrupted, load, refused):
    dataset = load("cifar10c", root=corrupted.parent, severity=2, corruptions=["fog", "spatter"])
    assert dataset.domain_names == ("fog", "spatter")
    assert set(dataset.samples[:, 1, 0, 0]) == {2}
    assert set(dataset.samples[:, 0, 0, 0]) == {COMMON_CORRUPTIONS.index("fog"), 15}
    assert load("cifar10c", root=corrupted, corruptions="fog").domain_names == ("fog",)
    assert load("cifar10c", root=corrupted, corruptions="fog,frost").domain_names == ("fog", "frost")
    assert "data.severity = 6" in refused("cifar10c", root=corrupted, severity=6)
    assert "data.corruptions" in refused("cifar10c", root=corrupted, corruptions=["mist"])
    assert "each corruption once" in refused("cifar10c", root=corrupted, corruptions=["fog", "fog"])
    assert "saturate.npy: no such file" in refused("cifar10c", root=corrupted, corruptions=["saturate"])


def test_a_missing_type(corrupted, refused):
    (corrupted / "frost.npy").unlink()
    assert "frost.npy missing in" in refused("cifar10c", root=corrupted)


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("labels", np.tile(LABELS + 1, 5), "labels.npy, row 9: label 10 is outside the class range; 0 to 9"),
        ("labels", np.arange(100) % 9, "labels.npy, row 0: different labels at different severities"),
        ("labels", np.tile(LABELS, 5)[:-1], "labels.npy: 99 labels, not as many for each of 5 severities"),
        ("labels", np.zeros(0, np.uint8), "labels.npy: 0 labels"),
        ("snow", np.zeros((100, 32, 32, 3), np.float32), "snow.npy: images hold float32"),
        ("snow", np.zeros((95, 32, 32, 3), np.uint8), "snow.npy: 95 images, and 100 labels in labels.npy"),
        ("snow", np.zeros((100, 30, 30, 3), np.uint8), "images of different sizes"),
        ("snow", np.array([object()] * 100), "snow.npy: incomplete or damaged .npy file"),
    ],
)
def test_wrong_arrays(corrupted, refused, name, array, text):
    np.save(corrupted / f"{name}.npy", array, allow_pickle=True)
    assert text in refused("cifar10c", root=corrupted)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_cut_off_files(corrupted, refused, keep):
    file = corrupted / "fog.npy"
    file.write_bytes(file.read_bytes()[:keep])
    assert "fog.npy: incomplete or damaged .npy file" in refused("cifar10c", root=corrupted)


@with_any_damage
def test_any_damage_is_one_line_or_harmless(data, corrupted, load_damaged):
    file = corrupted / data.draw(st.sampled_from(["labels.npy", "fog.npy"]))
    dataset = load_damaged(data, file, "cifar10c", header=127, root=corrupted)
    if dataset is not None:
        sound = dataset.domains != COMMON_CORRUPTIONS.index(
            "fog"
        )  # bytes of a picture may change without notice, labels may not
        shown = dataset.samples[:, 2, 0, 0]
        assert (LABELS[shown[sound]] == dataset.labels[sound]).all()
        assert np.bincount(dataset.labels[~sound]).tolist() == [2] * 10
