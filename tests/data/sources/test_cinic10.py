"""CINIC-10's folders."""

from pathlib import Path

import pytest

from fedbench.data.sources.cifar10c import CIFAR10_CLASSES


@pytest.fixture
def cinic(tmp_path, save_images) -> Path:
    """In each part and class one image from CIFAR-10 and two from ImageNet; the value says part and class."""
    for number, part in enumerate(("train", "valid", "test")):
        for label, name in enumerate(CIFAR10_CLASSES):
            folder = tmp_path / "CINIC-10" / part / name
            value = 20 * label + number
            save_images(folder, [value], 32, "cifar10-train-{}.png")
            save_images(folder, [value, value + 10], 32, "n02691156_{}.png")
    return tmp_path


def test_the_validation_part_is_joined_and_sources_are_domains(cinic, load):
    dataset = load("cinic10", root=cinic)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (60, 30, (3, 32, 32))
    assert dataset.class_names == CIFAR10_CLASSES
    assert dataset.domain_names == ("cifar10", "imagenet")
    assert dataset.domains[:6].tolist() == [0, 1, 1] * 2
    assert (dataset.samples[:, 0, 0, 0] // 20 == dataset.labels).all()
    assert set(dataset.samples[60:, 0, 0, 0] % 10) == {2}
    assert dataset.mean[0] == 0.47889522
    assert load("cinic10", root=cinic, join_val=False).train_rows == 30


def test_what_is_missing(cinic, refused):
    folder = cinic / "CINIC-10"
    for file in (folder / "test" / "ship").iterdir():
        file.unlink()
    assert "test/ship: no images in it" in refused("cinic10", root=cinic)
    (folder / "test" / "ship").rmdir()
    assert "test: no folder for class ship" in refused("cinic10", root=cinic)
    (folder / "valid").rename(folder / "other")
    assert "valid missing in" in refused("cinic10", root=folder)


def test_a_broken_image_is_named(cinic, refused):
    (cinic / "CINIC-10" / "valid" / "frog" / "cifar10-train-121.png").write_bytes(b"")
    assert "frog/cifar10-train-121.png: not an image" in refused("cinic10", root=cinic)
