"""mini-ImageNet's lists and images."""

from pathlib import Path

import pytest

from tests.data.loading import with_any_damage

PARTS = {"train": ["n00000003", "n00000001"], "val": ["n00000002"], "test": ["n00000004"]}


@pytest.fixture
def mini(tmp_path, save_images) -> Path:
    """Twelve images of each of four classes; the value says class (tens of 16) and place in the list."""
    root = tmp_path / "mini-imagenet"
    for part, numbers in PARTS.items():
        lines = ["filename,label"]
        for number in numbers:
            values = [16 * int(number[1:]) + i for i in range(12)]
            save_images(root / "images", values, 84, number + "{:08d}.jpg")
            lines += [f"{number}{value:08d}.jpg,{number}" for value in values]
        (root / f"{part}.csv").write_text("\n".join(lines) + "\n")
    return root


def test_all_classes_are_joined_and_every_sixth_image_is_a_test_image(mini, load):
    dataset = load("mini-imagenet", root=mini)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (40, 8, (3, 84, 84))
    assert dataset.class_names == ("n00000001", "n00000002", "n00000003", "n00000004")
    value = dataset.samples[:, 0, 0, 0]
    assert (value // 16 - 1 == dataset.labels).all()
    assert set(value[40:] % 16) == {5, 11}
    assert not set(value[:40] % 16) & {5, 11}
    assert "every sixth image" in dataset.warnings[0]


def test_larger_images_are_made_84_pixels_wide(mini, load, save_images):
    save_images(mini / "images", [16], 300, "n00000001{:08d}.jpg")
    assert load("mini-imagenet", root=mini).shape == (3, 84, 84)
    assert load("mini-imagenet", root=mini, size=20).shape == (3, 20, 20)


def test_wrong_lists(mini, refused):
    file = mini / "val.csv"
    lines = file.read_text().splitlines()
    for row, line, text in (
        (0, "file,label", "val.csv, row 1: expected columns filename and label, not file, label"),
        (4, "n0000000200000099.jpg,n00000002", "n0000000200000099.jpg is missing"),
        (4, "n0000000200000032.jpg,n00000002", "row 5: n0000000200000032.jpg is listed twice, first in"),
        (
            4,
            "n0000000200000035.jpg,n00000003",
            "row 5: n0000000200000035.jpg does not belong to class n00000003 by its name",
        ),
        (4, "n0000000200000035.jpg,n0000000", "row 5: label n0000000 is not a WordNet number"),
        (4, "n0000000200000035.jpg,", "row 5: expected a file name and a label"),
        (4, "n0000000200000035.jpg", "row 5: 1 values, expected 2"),
    ):
        file.write_text("\n".join([*lines[:row], line, *lines[row + 1 :]]))
        assert text in refused("mini-imagenet", root=mini)
    file.unlink()
    assert "val.csv missing in" in refused("mini-imagenet", root=mini)


def test_it_is_imported_and_never_downloaded(refused):
    text = refused("mini-imagenet")
    assert "no public address with a checksum" in text
    assert "fedbench data mini-imagenet --from PATH" in text


@with_any_damage
def test_any_damage_to_a_list_is_one_line_or_harmless(data, mini, load_damaged):
    dataset = load_damaged(data, mini / "train.csv", "mini-imagenet", root=mini)
    if dataset is not None:
        numbers = [int(name[1:]) for name in dataset.class_names]
        assert [numbers[label] for label in dataset.labels] == (dataset.samples[:, 0, 0, 0] // 16).tolist()
