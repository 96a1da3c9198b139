"""Items of map-style data sets as they come."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from fedbench.data.reading.beside import Beside
from fedbench.data.reading.items import GivenPart, Keys
from fedbench.errors import ConfigError


def part(data, **keys) -> GivenPart:
    return GivenPart.of("mine:make", "train", data, Keys(**keys))


@pytest.mark.parametrize(
    "item",
    [(1.5, 2), [1.5, 2], {"x": 1.5, "label": 2}, {"target": torch.tensor(2), "features": 1.5}],
)
def test_sample_and_target_are_told_apart(item):
    found = part([item]).item(0)
    assert (found.image, found.label, found.where, found.domain) == (1.5, 2, "data mine:make, train item 0", None)


@pytest.mark.parametrize("item", [(1.5, 2, "ann"), {"x": 1.5, "y": 2, "writer": "ann"}])
def test_the_third_is_whose_sample_it_is(item):
    assert part([item]).item(0).domain == "ann"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (3, "a int; (sample, target), (sample, target, domain) or a dict"),
        ((1, 2, 3, 4), "a tuple of 4; "),
        ((1, 2, [3, 4]), "the domain is a ndarray; text or a whole number"),
        ({"a": 1, "label": 2, "c": 3}, "which key holds the sample? Set data.sample to one of a, c, or several sep"),
        ((1, 2, float("nan")), "the domain is nan; text or a whole number"),
    ],
)
def test_other_items_are_named(item, text):
    with pytest.raises(ConfigError) as caught:
        part([item]).item(0)
    assert str(caught.value).startswith("data mine:make, train item 0: ")
    assert text in str(caught.value)


def test_domains_are_known_by_their_names():
    class Rows(list):
        domains = ("ann", "bob")

    found = part(Rows([(0, 1, 1), (0, 1, "ann")]))
    assert [found.item(row).domain for row in range(2)] == ["bob", "ann"]
    for wrong, text in (((0, 1, 2), "domain 2; a number from 0 to 1"), ((0, 1), "no domain, but the part names 2")):
        with pytest.raises(ConfigError, match=text):
            part(Rows([wrong])).item(0)


def test_whole_numbers_written_as_floats_are_domains():
    assert part([(1.5, 2, np.float64(3))]).item(0).domain == 3


@pytest.mark.parametrize(
    ("target", "user", "what"),
    [
        (np.ma.masked, 1, "target"),
        (np.ma.masked_array([1.0, 2.0], mask=[0, 1]), 1, "target"),
        (1, np.ma.masked, "user"),
    ],
)
def test_masked_targets_and_users_are_refused_as_samples_are(target, user, what):
    line = f"item 0: the {what} has masked numbers; fill them in, x.filled"
    for item in ((0.5, target, user), {"x": 0.5, "label": target, "user": user}):
        with pytest.raises(ConfigError, match=line):
            part([item]).item(0)
    assert part([(0.5, np.ma.masked_array([1.0, 2.0]), 1)]).item(0).label.tolist() == [1, 2]


@pytest.mark.parametrize("key", ["sample", "label", "user"])
def test_keys_are_refused_for_items_without_keys(key):
    with pytest.raises(ConfigError, match=f"data.{key} = 'age': .* item 0 is no dict and has no keys"):
        part([(0.5, 1, "ann")], **{key: "age"}).item(0)


@pytest.mark.parametrize(("position", "what"), [(0, "sample"), (1, "target"), (2, "user")])
def test_what_changes_when_read_again_is_named(position, what):
    class Drawn(list):
        reads = 0

        def __getitem__(self, index):
            Drawn.reads += 1
            values = [0, 1, 2]
            values[position] = Drawn.reads
            return (np.full(3, values[0], np.float32), *values[1:])

    found = part(Drawn([None] * 3))
    with pytest.raises(ConfigError, match=f"train item 0: the {what} changes when read again; each is read once"):
        found.probe(found.reader(None), hashlib.sha256())


def test_the_class_names_that_a_column_declares():
    class Rows(list):
        features = {"x": None, "label": SimpleNamespace(names=["cat", "dog"]), "kind": SimpleNamespace(names=["a"])}  # noqa: RUF012

    rows = Rows([{"x": [1.0], "label": 1, "kind": 0}])
    assert part(rows).classes == ("cat", "dog")
    assert part(rows, label="kind").classes == ("a",)


def concatenated(*names):
    class Rows(list):
        pass

    parts = []
    for own in names:
        parts.append(Rows([(np.float32([1, 2]), 0), (np.float32([3, 4]), 1)]))
        vars(parts[-1]).update(own)
    return ConcatDataset(parts)


def test_a_concatenation_has_the_names_of_its_data_sets():
    names = {"classes": ["benign", "malignant"], "domains": ["bern"]}
    assert part(concatenated(names, names)).classes == ("benign", "malignant")
    assert part(Subset(concatenated(names, names), [0])).domains == ("bern",)


@pytest.mark.parametrize("key", ["classes", "domains"])
def test_a_concatenation_in_which_a_number_means_two_things_is_refused(key):
    with pytest.raises(ConfigError, match=f"a ConcatDataset of data sets with {key} ."):
        part(concatenated({key: ["a", "b"]}, {key: ["b", "c"]}))


@pytest.mark.parametrize("data", [[(np.zeros(2), 0, "nan")], [{"x": np.zeros(2), "y": 0, "patient": "nan"}]])
def test_a_missing_user_or_group_as_text_is_refused(data):
    keys = {"beside": Beside("patient")} if isinstance(data[0], dict) else {}
    with pytest.raises(ConfigError, match="is 'nan', a missing value as text; leave such samples out"):
        part(data, **keys).item(0)
