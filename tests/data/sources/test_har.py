"""UCI HAR's files, written as they are laid out."""

from pathlib import Path

import numpy as np
import pytest

from fedbench.data import importing
from fedbench.data.sources.har import SIGNALS

LABELS = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
PERSONS = {"train": [1, 1, 1, 1, 30, 30, 30], "test": [2, 2, 2, 10, 10]}
CLASSES = {"train": [5, 6, 1, 2, 3, 4, 5], "test": [1, 2, 3, 4, 6]}


def features(part: str) -> np.ndarray:
    return np.random.default_rng(len(part)).uniform(-1, 1, (len(PERSONS[part]), 561)).astype(np.float32)


def signals(part: str) -> np.ndarray:
    return np.random.default_rng(9).normal(size=(len(PERSONS[part]), 9, 128)).astype(np.float32)


@pytest.fixture
def har(tmp_path) -> Path:
    folder = tmp_path / "UCI HAR Dataset"
    for part in ("train", "test"):
        (folder / part / "Inertial Signals").mkdir(parents=True)
        np.savetxt(folder / part / f"X_{part}.txt", features(part), "% .7e")
        np.savetxt(folder / part / f"y_{part}.txt", CLASSES[part], "%d")
        np.savetxt(folder / part / f"subject_{part}.txt", PERSONS[part], "%d")
        for number, name in enumerate(SIGNALS):
            np.savetxt(folder / part / "Inertial Signals" / f"{name}_{part}.txt", signals(part)[:, number], "% .7e")
    (folder / "activity_labels.txt").write_text("".join(f"{n} {name}\n" for n, name in enumerate(LABELS, 1)))
    return folder


def test_features_activities_and_persons(har, load):
    dataset = load("har", root=har)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.kind) == (7, 5, (561,), "feature")
    np.testing.assert_allclose(dataset.samples, np.concatenate([features("train"), features("test")]), rtol=1e-6)
    assert dataset.class_names == LABELS
    assert dataset.labels.tolist() == [label - 1 for label in CLASSES["train"] + CLASSES["test"]]
    assert dataset.domain_names == ("1", "2", "10", "30")
    assert [int(dataset.domain_names[own]) for own in dataset.domains] == PERSONS["train"] + PERSONS["test"]
    assert "12 samples, not the 10,299 that were published" in dataset.warnings


def test_signals_in_the_order_of_their_names(har, load):
    dataset = load("har", root=har.parent, signals=True)
    assert (dataset.shape, len(dataset.mean)) == ((9, 128), 9)
    np.testing.assert_allclose(dataset.samples[:7], signals("train"), rtol=1e-6)
    assert SIGNALS[0] == "body_acc_x"
    assert SIGNALS[-1] == "total_acc_z"


def test_it_is_imported(har, load):
    importing.import_files("har", har.parent)
    assert load("har").train_rows == 7


def test_broken_files(har, refused):
    labels = har / "train" / "y_train.txt"
    for content, text in (
        ("7\n" * 7, "y_train.txt, row 0: label 7 is outside the class range; 1 to 6"),
        ("1\n" * 6, "7 samples, 6 labels and 7 persons"),
        ("a\n", "y_train.txt: cannot be read"),
        ("", "y_train.txt: empty file"),
        ("nan\n" * 7, "values that are not finite"),
    ):
        labels.write_text(content)
        assert text in refused("har", root=har)
    (har / "train" / "Inertial Signals" / "body_acc_x_train.txt").write_text("1 2\n")
    assert "files of different numbers of rows or columns" in refused("har", root=har, signals=True)
    (har / "test" / "X_test.txt").unlink()
    labels.write_text("1\n" * 7)
    assert "X_test.txt: cannot be read" in refused("har", root=har)
