"""What targets are taken for."""

import numpy as np
import pytest

from fedbench.data.reading.targets import read_targets, refuse_count
from fedbench.errors import ConfigError
from fedbench.tasks.targets import TargetError
from tests.data.loading import refused

CLASSES = np.arange(60) % 5


@pytest.mark.parametrize(
    "brought",
    [CLASSES, CLASSES.astype(np.uint8), CLASSES.astype(np.float64), np.eye(5)[CLASSES], np.eye(5, dtype=bool)[CLASSES]],
    ids=["whole", "bytes", "floats", "one-hot floats", "one-hot booleans"],
)
def test_classes_are_classes_however_they_are_written(brought):
    found = read_targets(brought)
    assert (found.task, found.classes, found.labels) == ("classification", 5, ())
    assert found.values.dtype == np.int64
    assert found.values.tolist() == CLASSES.tolist()
    assert bool(found.remarks) == (brought.dtype.kind == "f" or brought.ndim > 1)


def test_a_number_of_classes_is_refused_where_targets_are_none():
    assert refuse_count(5, read_targets(CLASSES)).classes == 5
    with pytest.raises(ConfigError, match=r"data\.classes = 5: the task regression has no classes; leave it out"):
        refuse_count(5, read_targets(CLASSES, "regression"))
    for task, values in (("next-token", CLASSES.reshape(-1, 5)), ("binary", CLASSES % 2)):
        read = read_targets(values, task, classes=CLASSES.max() + 1 if task == "next-token" else 2)
        assert refuse_count(5, read) is read


def test_booleans_and_zeros_and_ones_are_two_classes():
    found = read_targets(np.arange(8) % 2 == 1)
    assert (found.classes, found.names, found.values.tolist()) == (2, ("False", "True"), [0, 1] * 4)
    assert read_targets((np.arange(8) % 2).astype(np.float32)).classes == 2


def test_text_is_classes_in_alphabetical_order():
    found = read_targets(np.array(["dog", "cat", "dog", "owl"]))
    assert (found.names, found.values.tolist()) == (("cat", "dog", "owl"), [1, 0, 1, 2])


@pytest.mark.parametrize(
    ("labels", "line"),
    [(CLASSES * 10, "labels 0, 10, 20, 30, 40 are classes 0 to 4"), (CLASSES + 1, "labels 1 to 5 are")],
)
def test_labels_with_gaps_or_from_one_become_compact_and_the_labels_are_kept(labels, line):
    found = read_targets(labels)
    assert found.classes == 5
    assert found.values.tolist() == CLASSES.tolist()
    assert [int(found.labels[value]) for value in found.values] == labels.tolist()
    assert line in found.remarks[0]


def test_text_keeps_the_order_of_the_names_that_are_declared():
    found = read_targets(np.array(["m", "z", "m"]), names=["z", "m", "q"])
    assert (found.values.tolist(), found.classes, found.names) == ([1, 0, 1], 3, ("z", "m", "q"))
    with pytest.raises(TargetError, match="label 'x' is none of the classes z, m"):
        read_targets(np.array(["z", "x"]), names=["z", "m"])
    with pytest.raises(ConfigError, match=r"data\.classes = 7: the targets are 2 texts"):
        read_targets(np.array(["z", "m"]), classes=7)
    with pytest.raises(ConfigError, match=r"data\.classes = 7: the data set names 3 classes; leave it out"):
        read_targets(np.array(["z", "m"]), names=["z", "m", "q"], classes=7)
    assert read_targets(np.array(["z", "m"]), names=["z", "m", "q"], classes=3).classes == 3


@pytest.mark.parametrize("labels", [np.array([0, 2**63 + 5], np.uint64), np.array([0, -1e300]), np.array([0, 2.0**63])])
def test_labels_that_no_class_number_holds_are_named(labels):
    with pytest.raises(TargetError, match="is too large for a class") as caught:
        read_targets(labels.repeat(9), task="classification")
    assert caught.value.row == 9
    assert f"label {labels[1]} " in str(caught.value)


def test_negative_labels_are_classes_where_they_cannot_stand_for_hidden_ones():
    assert read_targets(np.array([1, -1, 1])).labels == ("-1", "1")
    assert read_targets(np.array([1.0, -1.0] * 4)).labels == ("-1", "1")
    assert read_targets(np.array([-2, 1, 3])).values.tolist() == [0, 1, 2]
    assert read_targets(np.array(["1", "-1"] * 4)).names == ("-1", "1")
    assert read_targets(np.array([-2.0, 1, 3] * 4)).labels == ("-2", "1", "3")
    for labels in (np.array([-1, 0, 1]), np.array([-1.0, 0, 1] * 4)):
        assert read_targets(labels, "classification").labels == ("-1", "0", "1")


def test_many_whole_numbers_with_gaps_are_asked_about():
    ages = 18 + np.arange(400) * 7 % 53 * 2
    with pytest.raises(ConfigError, match="whole numbers that hardly repeat"):
        read_targets(ages)
    assert read_targets(np.tile(ages, 10)).classes == 53
    assert read_targets(np.repeat(np.arange(100), 5)).classes == 100


@pytest.mark.parametrize("task", ["auto", "regression", "classification"])
def test_targets_that_are_not_finite_are_named(task):
    with pytest.raises(TargetError, match="target inf is not finite") as found:
        read_targets(np.array([0.0, np.inf, 1.0]), task)
    assert found.value.row == 1


def test_numbers_that_float32_would_blur_are_refused():
    with pytest.raises(ConfigError, match="the target goes from 1000000000 to 1000000059"):
        read_targets(1e9 + np.arange(60.0), "regression")


def test_declared_classes_keep_their_numbers():
    found = read_targets(CLASSES + 1, names=tuple("abcdef"))
    assert (found.classes, found.names, found.labels, found.values.max()) == (6, tuple("abcdef"), (), 5)
    assert read_targets(CLASSES + 1, classes=8).classes == 8


@pytest.mark.parametrize(
    ("labels", "more", "row", "text"),
    [
        (CLASSES, {"names": ("a", "b")}, 2, "label 2 is outside the class range; 0 to 1 (2 class names are given"),
        (CLASSES, {"classes": 4}, 4, "label 4 is outside the class range; 0 to 3"),
        (
            CLASSES - 1,
            {},
            0,
            "label -1: remove such samples if it means a hidden label, or set --task class",
        ),
        (np.array([1, 0, -9]), {}, 2, "label -9: remove such samples"),
        (np.array([1, 0, -100]), {}, 2, "label -100: remove such samples if it means a hidden label"),
        (CLASSES - 1.0, {}, 0, "label -1: remove such samples if it means a hidden label, or set --task class"),
        ((CLASSES - 1.0)[:, None], {}, 0, "label -1: remove such samples"),
        (np.where(CLASSES == 3, -99.0, CLASSES), {}, 3, "label -99: remove such samples"),
        ((CLASSES - 1).astype(str), {}, 0, "label -1: remove such samples"),
        (np.array(["1", "0", "1", "-9.0"]), {}, 3, "label -9: remove such samples"),
        (CLASSES - 1, {"classes": 9}, 0, "label -1 is outside the class range; 0 to 8"),
        (CLASSES + 0.5, {"names": ("a", "b")}, 0, "label 0.5 is not a whole number"),
        (np.eye(5)[CLASSES] * 2, {"task": "multilabel"}, 0, "is not a row of 0 and 1"),
        (np.ones((4, 2)), {"task": "classification"}, 0, "several labels, or none; --task multilabel takes them"),
        (np.array(["a", "b"]), {"task": "regression"}, 0, "'a' is text"),
    ],
)
def test_a_target_that_does_not_fit_is_named_by_its_row(labels, more, row, text):
    with pytest.raises(ConfigError) as caught:
        read_targets(labels, **more)
    assert text in str(caught.value)
    assert caught.value.row == row


def test_rows_of_zeros_and_ones_are_several_labels_at_once():
    rows = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    for brought in (rows, rows.astype(bool), rows.astype(np.float64)):
        found = read_targets(brought, names=("a", "b", "c"))
        assert (found.task, found.classes, found.names) == ("multilabel", 0, ("a", "b", "c"))
        assert found.values.dtype == np.float32
        assert found.values.tolist() == rows.tolist()
    assert read_targets(np.eye(3)[[0, 1, 2, 1]], "multilabel").task == "multilabel"


def test_numbers_are_a_regression():
    for brought in (np.linspace(0, 1, 50), np.arange(50.0), np.random.default_rng(0).normal(size=(50, 3))):
        found = read_targets(brought)
        assert (found.task, found.classes) == ("regression", 0)
        np.testing.assert_array_equal(found.values, brought.astype(np.float32))


@pytest.mark.parametrize("brought", [CLASSES, CLASSES.astype(float), np.eye(5)[CLASSES], CLASSES > 2])
def test_anything_in_numbers_is_a_regression_where_that_is_said(brought):
    found = read_targets(brought, "regression")
    assert (found.task, found.remarks) == ("regression", ())
    np.testing.assert_array_equal(found.values, brought.astype(np.float32))


@pytest.mark.parametrize(
    ("brought", "text"),
    [
        (np.arange(200.0) % 60, "60 different whole values: set --task classification"),
        (np.arange(200) * 3, "200 different ones in 200 samples"),
        (np.full((6, 2), 0.5), "look like shares of classes"),
        (np.array([[0, 2], [1, 1]]), "[2] whole numbers for each sample"),
        (np.zeros((4, 3, 3), np.int64), "[3, 3] whole numbers for each sample"),
        (np.array([["a", "b"], ["c", "d"]]), "[2] texts for each sample"),
    ],
)
def test_what_only_the_user_knows_is_asked_for(brought, text):
    assert text in refused(read_targets, brought)


LETTERS = ["cough", "fever", "rash", "pain"]


@pytest.mark.parametrize(
    ("texts", "seen"),
    [
        (
            [f"{value / 8:.3f}".replace(".", ",") for value in range(300)],
            "numbers with a decimal comma, such as '0,000'",
        ),
        ([f"{value / 8:.2f}" for value in range(300)], "numbers written as text, such as '0.00'"),
        ([f"{value % 90}.5%" for value in range(300)], "numbers with a unit, such as '0.5%'"),
        ([f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(300)], "dates or times, such as '2024-01-01'"),
        ([f"patient {row}" for row in range(300)], "texts that hardly repeat (300 different ones in 300 samples)"),
        (["0", "1", "?"] * 9, "numbers, and texts such as '?'"),
    ],
)
def test_texts_that_may_be_numbers_or_hardly_repeat_are_asked_about(texts, seen):
    assert refused(read_targets, np.array(texts)).startswith(
        f"the targets are {seen}: set --task classification if they are classes, or --task regression"
    )
    assert read_targets(np.array(texts), "classification").classes == len(set(texts))


def test_labels_joined_in_one_text_are_asked_about():
    joined = ["|".join(name for place, name in enumerate(LETTERS) if row >> place & 1) or "none" for row in range(300)]
    with pytest.raises(
        ConfigError, match=r"such as '.*\|.*': set --task class.* or write a column of 0 and 1 for each for"
    ):
        read_targets(np.array(joined))


def test_texts_are_numbers_where_that_is_said():
    assert read_targets(np.array(["1.5", "-2", "1e1"]), "regression").values.tolist() == [1.5, -2, 10]
    with pytest.raises(TargetError, match="label '0,5' is text; numbers with a decimal comma: write a point") as caught:
        read_targets(np.array(["1.5", "0,5"]), "regression")
    assert caught.value.row == 1


def test_texts_that_are_whole_numbers_are_in_the_order_of_numbers():
    found = read_targets(np.array(["10", "9", "123456789012345678901", "9"]))
    assert found.names == ("9", "10", "123456789012345678901")
    assert found.values.tolist() == [1, 0, 2, 0]
    assert read_targets(np.array(["10", "9", "09"])).names == ("09", "10", "9")
