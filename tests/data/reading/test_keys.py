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
