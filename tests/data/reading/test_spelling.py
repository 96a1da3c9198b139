"""Labels and users that differ in case or blanks alone are asked about in data of any form."""

import numpy as np
import pytest

from fedbench import Config
from fedbench.data.dataset import Dataset
from fedbench.data.reading.spelling import with_one_spelling
from fedbench.errors import ConfigError

SAMPLES = np.arange(24, dtype=np.float32).reshape(12, 2) / 7
ANSWERS = ["Yes", "no", "No"] * 4
ASKED = r"'no' and 'No' differ in case or blanks alone: one \(--data.spelling merged\) or two \(--data.spelling exact\)"


def dataset(data, **options) -> Dataset:
    return Dataset.of_run(Config(data={"name": data, **options}))


def test_labels_that_differ_in_case_alone_are_asked_about_and_are_one_or_several_as_the_key_says():
    data = (SAMPLES, np.array(ANSWERS))

    with pytest.raises(ConfigError, match=f"the labels: {ASKED}"):
        dataset(data)
    assert dataset(data, spelling="merged").class_labels == ("Yes", "no")
    assert dataset(data, spelling="exact").class_labels == ("No", "Yes", "no")


def test_users_that_differ_in_case_alone_are_asked_about():
    data = (SAMPLES, np.arange(12) % 2, np.array(["ann", "Ann", "bob"] * 4))

    with pytest.raises(ConfigError, match="the users: 'ann' and 'Ann' differ"):
        dataset(data)
    assert dataset(data, spelling="merged").domain_names == ("ann", "bob")


def test_declared_classes_are_as_they_are_declared():
    class Letters(list):
        classes = ("a", "A")

    data = Letters((sample, number % 2) for number, sample in enumerate(SAMPLES))

    assert dataset({"train": data, "test": data}).class_names == ("a", "A")


def test_the_most_frequent_spelling_stands_for_all():
    texts = np.array(["St. Ives", "st. ives", "st. ives", "Bath"])

    assert with_one_spelling("data", "the users", texts, "merged").tolist() == ["st. ives"] * 3 + ["Bath"]


def test_blanks_around_texts_go():
    texts = np.array([" Bath", "Bath ", "Bath"])

    assert with_one_spelling("data", "the users", texts, None).tolist() == ["Bath"] * 3


def test_values_that_are_no_texts_stay():
    numbers = np.array([1, 2, 1])

    assert with_one_spelling("data", "the users", numbers, None) is numbers


def test_one_number_in_two_spellings_is_asked_about():
    data = (SAMPLES, np.array(["1", "1.0", "0"] * 4))

    with pytest.raises(ConfigError, match=r"the labels: '1' and '1\.0' are one number: one"):
        dataset(data)
    assert dataset(data, spelling="merged").class_names == ("0", "1")
    assert dataset(data, spelling="exact").class_names == ("0", "1", "1.0")


def test_large_numbers_that_differ_are_different():
    texts = np.array(["9007199254740993", "9007199254740992"])
    assert with_one_spelling("data", "the users", texts, None).tolist() == texts.tolist()


def test_codes_are_no_numbers():
    for texts in (["12", "0012"], ["1e3", "1000"], ["-", "+"]):
        assert with_one_spelling("data", "the users", np.array(texts), None).tolist() == texts
