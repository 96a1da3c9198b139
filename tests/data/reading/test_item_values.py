"""Values of items: targets, users and names."""

import numpy as np
import pytest
import torch

from fedbench.data.reading.images import Item
from fedbench.data.reading.item_values import checked_target, domain_numbers, names_and_count, unwrap_value
from fedbench.errors import ConfigError
from tests.data.reading.test_items import part


@pytest.mark.parametrize(
    ("known", "names", "count"),
    [(None, (), None), (3, (), 3), (("a", 1), ("a", "1"), 2), ({"b": 1, "a": 0}, ("a", "b"), 2), ((), (), None)],
)
def test_names(known, names, count):
    assert names_and_count(known, "classes") == (names, count)


@pytest.mark.parametrize(
    ("known", "text"), [({"a": 1}, "other numbers than 0 to 0"), ("abc", "is a str"), (["a", "a"], "has 'a' twice")]
)
def test_what_are_no_names(known, text):
    with pytest.raises(ConfigError, match=text):
        names_and_count(known, "classes")


def test_a_target_is_like_the_first():
    first = checked_target(part([(0, 3)]).item(0), None)
    assert checked_target(part([(0, np.uint8(2))]).item(0), first) == 2
    for other, text in (
        (0.5, "of another type than the first, 3"),
        ([1, 2], "of shape"),
        (None, "missing; leave such samples out"),
        (float("nan"), "the target is not finite; leave such samples out"),
        ("a", "3"),
    ):
        with pytest.raises(ConfigError, match=text):
            checked_target(part([(0, other)]).item(0), first)


def test_numbers_are_plain():
    assert [unwrap_value(value) for value in (torch.tensor([3]), np.float64(0.5), "a", None)] == [3, 0.5, "a", None]
    assert unwrap_value([1, 2]).tolist() == [1, 2]


def test_domains_get_numbers():
    numbers, names = domain_numbers((), np.array(["b", "a", "b"]))
    assert (numbers.tolist(), names) == ([1, 0, 1], ("a", "b"))
    numbers, names = domain_numbers((), np.array(["10", "9", "1"]))
    assert (numbers.tolist(), names) == ([2, 1, 0], ("1", "9", "10")), "as those of a table"
    assert domain_numbers(("b", "a"), np.array(["b", "a"]))[0].tolist() == [0, 1]


@pytest.mark.parametrize("text", ["nan", "", " ", "<NA>"])
def test_a_missing_value_as_text_is_no_class(text):
    with pytest.raises(ConfigError, match=r"item 3: the label is .*, a missing value as text; leave such samples out"):
        checked_target(Item(None, text, "item 3", None, (None, None)), None)
