"""LEAF's JSON files, written as its preprocess.sh lays them out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbench import cli
from fedbench.data import importing
from fedbench.data.sources.leaf import CHARACTERS

Users = dict[str, tuple[list[Any], list[Any]]]
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 784)) / 255


def write(file: Path, users: Users) -> Path:
    """A file with the keys that LEAF writes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": [*users],
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    file.write_text(json.dumps(content))
    return file


def text(start: int) -> str:
    return "".join(CHARACTERS[(start + place) % 80] for place in range(80))


@pytest.fixture
def digits(tmp_path) -> Path:
    """Two training files and a test file of writers, as of FEMNIST."""
    rows = IMAGES.tolist()
    write(tmp_path / "train" / "all_data_0_niid_0_keep_0_train_9.json", {"f0_1": (rows[:2], [0, 61])})
    write(tmp_path / "train" / "all_data_1_niid_0_keep_0_train_9.json", {"f0_0": (rows[2:4], [10, 0])})
    write(
        tmp_path / "test" / "all_data_0_niid_0_keep_0_test_9.json",
        {"f0_1": ([rows[4]], [36]), "f0_0": ([rows[5]], [1])},
    )
    return tmp_path


@pytest.fixture
def plays(tmp_path) -> Path:
    """Roles, as of Shakespeare."""
    train = {"HAMLET": ([text(0), text(1), text(5)], ["\n", "a", "}"]), "OPHELIA": ([text(2), text(3)], ["z", " "])}
    write(tmp_path / "train" / "all_data_niid_1_keep_0_train_9.json", train)
    write(
        tmp_path / "test" / "all_data_niid_1_keep_0_test_9.json",
        {"HAMLET": ([text(9)], ["!"]), "OPHELIA": ([text(4)], ["z"])},
    )
    return tmp_path


def test_writers_of_femnist_are_domains_and_numbers_are_images(digits, load):
    dataset = load("femnist", root=digits)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.kind) == (4, 2, (1, 28, 28), "image")
    np.testing.assert_array_equal(dataset.samples.reshape(6, 784), IMAGES.astype(np.float32))
    assert [dataset.class_names[label] for label in dataset.labels] == ["0", "z", "A", "0", "a", "1"]
    assert [dataset.domain_names[own] for own in dataset.domains] == ["f0_1", "f0_1", "f0_0", "f0_0", "f0_1", "f0_0"]
    assert dataset.classes == 62
    assert dataset.mean == pytest.approx([IMAGES[:4].mean()])


def test_numbers_are_features_unless_they_have_a_shape(digits, load, refused):
    dataset = load(f"leaf:{digits}")
    assert (dataset.shape, dataset.kind, dataset.class_names) == ((784,), "feature", ("0", "1", "10", "36", "61"))
    assert load(f"leaf:{digits}", shape="1,28,28").kind == "image"
    assert load(f"leaf:{digits}", shape=[28, 28]).kind == "feature"
    assert "data.shape = [1, 14, 14]: " in refused(f"leaf:{digits}", shape="1,14,14")


def test_texts_are_tokens_in_leafs_order_and_the_next_character_is_the_class(plays, load, refused):
    dataset = load("shakespeare", root=plays)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.kind) == (5, 2, (80,), "token")
    assert dataset.classes == len(CHARACTERS) == 80
    for row, start in enumerate((0, 1, 5, 2, 3, 9, 4)):
        assert dataset.samples[row].tolist() == [(start + place) % 80 for place in range(80)]
    assert [dataset.class_names[label] for label in dataset.labels[:5]] == ["newline", "a", "}", "z", "space"]
    assert dataset.labels[:2].tolist() == [CHARACTERS.index("\n"), CHARACTERS.index("a")]
    assert any(repr(CHARACTERS) in decision.said for decision in dataset.decisions)
    assert dataset.domain_names == ("HAMLET", "OPHELIA")
    assert "holds texts; leave it out" in refused("shakespeare", root=plays, shape="80")


def test_all_data_alone_is_one_part(tmp_path, load):
    rows = np.eye(8, 3).tolist()
    write(tmp_path / "all_data" / "all_data.json", {"a": (rows[:4], [0, 1, 0, 1]), "b": (rows[4:], [1, 1, 0, 0])})
    dataset = load(f"leaf:{tmp_path}")
    assert (dataset.train_rows, dataset.test_rows, dataset.one_part) == (8, 0, True)


def test_what_preprocess_wrote_is_imported_from_a_clone_of_leaf(digits, tmp_path_factory, load):
    clone = tmp_path_factory.mktemp("leaf")
    (clone / "data" / "femnist").mkdir(parents=True)
    digits.rename(clone / "data" / "femnist" / "data")
    importing.import_files("femnist", clone)
    assert load("femnist").train_rows == 4


def test_a_set_that_nobody_made_says_how_to_make_it(refused):
    line = refused("femnist")
    assert "data/femnist/preprocess.sh -s niid --sf 1.0 -t sample" in line
    assert line.endswith("then import them from where you have them: fedbench data femnist --from PATH")


@pytest.mark.parametrize(
    ("users", "text"),
    [
        ({"u": ([["1", "@me", "words here"]], [1])}, "u: x holds neither numbers of one shape nor strings; make whole"),
        ({"u": ([[1, 2], [3]], [0, 1])}, "u: x holds neither numbers of one shape nor strings"),
        ({"u": ([[1, float("nan")]], [0])}, "u: a value that is not finite"),
        ({"u": ([[1, 2]], [0]), "v": ([[1]], [0])}, "v: the sample is of shape [1], those before it are of shape [2]"),
        ({"u": ([[1, 2]], [0, 1])}, "u: x and y are not lists of the same length"),
        ({"u": ([[1, 2], [1, 3]], [0, "a"])}, "u: y holds neither numbers nor text"),
        ({"u": ([[1, 2], [1, 3]], [0, -1]), "v": ([[1, 2]], [-1])}, "u, sample 1: label -1"),
        ({"u": (["abc", "ab"], ["a", "b"])}, "u: texts of different lengths"),
        ({"u": (["abc", "a$c"], ["a", "b"])}, "u, sample 1: '$' is not one of LEAF's 80 characters"),
        ({"u": (["abc", "aéc"], ["a", "b"])}, "u, sample 1: 'é' is not one of LEAF's 80 characters"),
        ({"u": (["abc"], ["$"])}, "u, sample 0: '$' is not one"),
        ({"u": ([], [])}, "no training samples in it"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, refused, users, text):
    write(tmp_path / "all_data" / "all_data.json", users)
    assert text in refused(f"leaf:{tmp_path}")


def test_broken_files_and_folders(digits, refused):
    file = next((digits / "test").iterdir())
    for content, text in (
        ("{", "not a whole JSON file"),
        ("[]", "expected users"),
        ('{"users": ["a"]}', "expected users"),
    ):
        file.write_text(content)
        assert f"{file}: {text}" in refused(f"leaf:{digits}")
    file.unlink()
    assert "no *.json files in both train and test, nor in all_data alone" in refused(f"leaf:{digits}")


def test_the_licence_is_said(digits, capsys):
    assert cli.main(["data", "femnist", "--data.root", str(digits)]) == 0
    assert "licence    BSD 2-clause (LEAF)" in capsys.readouterr().out
