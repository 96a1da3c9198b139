"""AG News' tables, written as they are laid out."""

from pathlib import Path

import pytest

TRAIN = """"3","Wall St. Bears","Short-sellers, ""ultra-cynics"", the bears\\see green."
"4","The bears","the NULL, the end"
"1","NA","bears"
"""
TEST = '"2","The end","a new word"\n"1","Bears",""\n'


@pytest.fixture
def news(tmp_path) -> Path:
    (tmp_path / "train.csv").write_text(TRAIN)
    (tmp_path / "test.csv").write_text(TEST)
    return tmp_path


def test_the_most_frequent_training_words_are_tokens(news, load):
    dataset = load("ag-news", root=news, words=3, length=6)
    assert (dataset.train_rows, dataset.test_rows, dataset.kind, dataset.shape) == (3, 2, "token", (6,))
    # bears and the occur 4 times, the others once, of which cynics is the first in the alphabet
    assert dataset.samples.tolist() == [
        [1, 1, 2, 1, 1, 1],
        [3, 2, 3, 1, 3, 1],
        [1, 2, 0, 0, 0, 0],
        [3, 1, 1, 1, 1, 0],
        [2, 0, 0, 0, 0, 0],
    ]
    assert [dataset.class_names[label] for label in dataset.labels] == [
        "Business",
        "Sci/Tech",
        "World",
        "Sports",
        "World",
    ]
    assert any("not the published files (MD5 differs): train.csv, test.csv" in line for line in dataset.warnings)


def test_a_backslash_ends_a_word(news, load):
    dataset = load("ag-news", root=news, length=20)
    assert dataset.samples.max() == 1 + 13
    assert (dataset.samples[0] > 1).sum() == 11


def test_broken_tables(news, refused):
    for content, text in (
        ('"5","a","b"\n', "row 0: label 5 is outside the class range; 1 to 4"),
        ('"x","a","b"\n', "train.csv: labels hold object; labels must be whole numbers"),
        ("", "train.csv: not a table of class, title and description"),
        ('"1","a"\n"1","a","b","c","d"\n', "train.csv: not a table of class, title and description"),
    ):
        (news / "train.csv").write_text(content)
        assert text in refused("ag-news", root=news)
