"""A key is the one that is named, or the usual one that is there."""

import pytest

from fedbench.data.reading.keys import NamedParts
from tests.data.loading import refused


def test_a_named_key_comes_before_the_usual_one():
    assert NamedParts(["label", "kind"], "the set").find("label", "kind") == "kind"
    assert NamedParts(["image", "label"], "the set").find("label", None) == "label"
    assert NamedParts(["image", "kind"], "the set").find("label", None) is None


@pytest.mark.parametrize(
    ("asked", "keys", "line"),
    [
        ("lable", ["image", "label"], "data.label = 'lable': the set has no such column; did you mean label?"),
        (None, ["label", "target"], "the set: label and target could be the label: set data.label to one of them"),
        (None, ["image", "kind"], "the set: which column holds the label? Set data.label to one of image, kind"),
    ],
)
def test_a_key_that_only_the_user_knows_is_asked_for(asked, keys, line):
    assert refused(NamedParts(keys, "the set", "column").require, "label", asked) == line


def test_the_case_of_a_usual_key_does_not_matter():
    assert NamedParts(["User", "a", "Class"], "the set").find("user", None) == "User"
    assert NamedParts(["User ID", "a"], "the set").find("user", None) == "User ID"
    assert NamedParts(["X", "Y", "label"], "the set").find("label", None) == "label", "as it is written comes first"
    line = "the set: User and Client could be the user: set data.user to one of them"
    assert refused(NamedParts(["User", "Client"], "the set", "column").find, "user", None) == line
