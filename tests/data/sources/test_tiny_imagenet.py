"""Tiny-ImageNet's layout."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fedbench.data import importing
from tests.data.loading import with_any_damage

NUMBERS = ["n02", "n01", "n03"]


@pytest.fixture
def tiny(tmp_path, save_images) -> Path:
    """Three classes of four training images; six annotated ones. The value tells the class: n01 10, n02 20, n03 30."""
    root = tmp_path / "tiny-imagenet-200"
    for number in NUMBERS:
        first = 10 * int(number[1:])
        save_images(root / "train" / number / "images", [first + i for i in range(4)], 64, number + "_{}.JPEG")
        (root / "train" / number / f"{number}_boxes.txt").write_text("")
    save_images(root / "val" / "images", [35, 15, 25, 26, 16, 36], 64, "val_{}.JPEG")
    lines = [f"val_{v}.JPEG\tn0{v // 10}\t0\t0\t63\t63" for v in (35, 15, 25, 26, 16, 36)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (root / "wnids.txt").write_text("\n".join(NUMBERS) + "\n")
    (root / "words.txt").write_text("n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\ttench\n")
    return root


def test_classes_are_numbered_as_folder_readers_do(tiny, load):
    dataset = load("tiny-imagenet", root=tiny)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (12, 6, (3, 64, 64))
    assert dataset.class_names == ("goldfish", "tench", "n03")
    assert (dataset.samples[:, 0, 0, 0] // 10 - 1 == dataset.labels).all()
    assert dataset.labels[12:].tolist() == [2, 0, 1, 1, 0, 2]
    assert load("tiny-imagenet", root=tiny.parent, size=32).shape == (3, 32, 32)


def test_the_real_sample(shared, load):
    importing.import_files("tiny-imagenet", shared / "tiny_imagenet")
    dataset = load("tiny-imagenet")
    assert (dataset.train_rows, dataset.test_rows, dataset.classes) == (1000, 240, 20)
    assert np.bincount(dataset.labels[:1000]).tolist() == [50] * 20
    assert np.bincount(dataset.labels[1000:]).tolist() == [12] * 20
    train = dataset.samples[:1000] / 255
    assert train.mean(axis=(0, 2, 3)) == pytest.approx(dataset.mean, abs=0.05)
    assert train.std(axis=(0, 2, 3)) == pytest.approx(dataset.std, abs=0.02)


def test_wrong_annotations(tiny, refused):
    file = tiny / "val" / "val_annotations.txt"
    lines = file.read_text().splitlines()
    for line, text in (
        ("val_25.JPEG\tn09", "val_annotations.txt, row 3: class n09 is not in wnids.txt"),
        ("val_25.JPEG", "row 3: class none is not in wnids.txt"),
        ("val_99.JPEG\tn02", "val_99.JPEG is missing"),
        ("../../wnids.txt\tn02", "row 3: '../../wnids.txt' is not a path inside"),
    ):
        file.write_text("\n".join([*lines[:2], line, *lines[3:]]))
        assert text in refused("tiny-imagenet", root=tiny)
    file.unlink()
    assert "val_annotations.txt: cannot be read" in refused("tiny-imagenet", root=tiny)


def test_missing_classes_and_images(tiny, refused):
    (tiny / "wnids.txt").write_text("n01\nn01\nn02\nn03\n")
    assert "wnids.txt: a class is listed twice" in refused("tiny-imagenet", root=tiny)
    (tiny / "wnids.txt").write_text("n01\nn02\nn03\nn04\n")
    assert "train: no folder for class n04" in refused("tiny-imagenet", root=tiny)
    (tiny / "train" / "n04" / "images").mkdir(parents=True)
    assert "train/n04/images: no images in it" in refused("tiny-imagenet", root=tiny)


@with_any_damage
def test_any_damage_to_the_lists_is_one_line_or_harmless(data, tiny, load_damaged):
    file = tiny / data.draw(st.sampled_from(["wnids.txt", "words.txt", "val/val_annotations.txt"]))
    dataset = load_damaged(data, file, "tiny-imagenet", root=tiny)
    if dataset is not None:
        value = dataset.samples[: dataset.train_rows, 0, 0, 0] // 10
        assert (np.unique(value)[dataset.labels[: len(value)]] == value).all()
