"""Folders of image files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.errors import ConfigError


def load(path: Path, **options) -> Dataset:
    return Dataset.load(Config(data={"name": f"folder:{path}", **options}).data)


def refused(path: Path, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def save(folder: Path, count: int, side: int = 5, value: int = 0) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(np.full((side, side, 3), value + number, np.uint8)).save(folder / f"{number:02d}.png")


@pytest.fixture
def classes(tmp_path) -> Path:
    """Two class folders with ten and five images; the pixels say which image it is."""
    save(tmp_path / "set" / "cat", 10)
    save(tmp_path / "set" / "dog", 5, value=100)
    return tmp_path / "set"


@pytest.fixture
def parts(tmp_path) -> Path:
    for part, count in (("train", 3), ("test", 2)):
        save(tmp_path / "set" / part / "cat", count)
        save(tmp_path / "set" / part / "dog", count, value=100)
    return tmp_path / "set"


def test_every_fifth_image_of_each_class_is_a_test_image(classes):
    dataset = load(classes)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.images[dataset.train_rows :, 0, 0, 0].tolist() == [4, 9, 104]
    assert dataset.images[: dataset.train_rows, 0, 0, 0].tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 100, 101, 102, 103]
    assert dataset.labels.tolist() == [0] * 8 + [1] * 4 + [0, 0, 1]


def test_train_and_test_folders(parts):
    dataset = load(parts)
    assert (dataset.train_rows, dataset.test_rows) == (6, 4)
    assert dataset.labels.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_a_class_may_be_called_train(classes):
    save(classes / "train", 5)
    assert load(classes).class_names == ("cat", "dog", "train")


def test_other_and_hidden_files_are_left_out(classes):
    (classes / "cat" / "readme.txt").write_text("hello")
    (classes / "cat" / ".hidden.png").write_text("hello")
    assert len(load(classes).labels) == 15


def test_an_added_image_is_noticed(classes):
    assert len(load(classes).labels) == 15
    Image.fromarray(np.zeros((5, 5, 3), np.uint8)).save(classes / "dog" / "99.png")
    assert len(load(classes).labels) == 16


def test_mixed_sizes_need_the_option(classes):
    save(classes / "owl", 5, side=6)
    assert "owl/00.png: the image is 6x6 of 3 channel(s)" in refused(classes)
    assert load(classes, size=4).shape == (3, 4, 4)


def test_a_damaged_image_is_named(classes):
    file = classes / "dog" / "03.png"
    file.write_bytes(file.read_bytes()[:45])
    assert "dog/03.png: " in refused(classes)
    file.write_bytes(b"")
    assert "dog/03.png: not an image" in refused(classes)


def test_folders_without_images(tmp_path, classes):
    assert "no such folder" in refused(tmp_path / "none")
    (classes / "owl").mkdir()
    assert "owl: no images in it" in refused(classes)
    (tmp_path / "empty").mkdir()
    assert "empty: no class folders in it" in refused(tmp_path / "empty")


def test_a_class_that_the_training_part_lacks(parts):
    save(parts / "test" / "owl", 1)
    assert "test/owl: no folder of this class in the training part" in refused(parts)


def test_too_few_images_for_a_test_part(tmp_path):
    save(tmp_path / "set" / "cat", 4)
    assert "4 training and 0 test images" in refused(tmp_path / "set")
