"""Schemes are found by their files, and say which keys they read."""

import sys
from types import ModuleType

import numpy as np
import pytest
from pydantic import Field

from fedbench.config import Config, PartitionConfig
from fedbench.data import partition
from fedbench.data.partitions.assignment import Assignment
from fedbench.data.partitions.scheme import (
    COMMON_KEYS,
    Scheme,
    load,
    names,
    resolve_scheme_options,
    unused_key_warnings,
)
from fedbench.errors import ConfigError
from tests.data.toys import EVEN


def test_every_file_is_a_scheme():
    assert {"iid", "dirichlet-fixed", "file"} <= set(names())
    assert all(isinstance(load(name), Scheme) for name in names())


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(ConfigError, match=r"unknown scheme 'dirichlett': did you mean dirichlet or dirichlet-fixed\?"):
        resolve_scheme_options(PartitionConfig(name="dirichlett"), False)


def test_every_key_that_a_scheme_reads_is_one():
    for name in names():
        assert set(load(name).reads) <= set(load(name).Options.model_fields)


def test_what_pages_name_of_a_scheme_is_what_it_reads():
    for name in names():
        own = set(load(name).Options.model_fields) - set(PartitionConfig.model_fields)
        assert set(load(name).headline) <= {*own, *COMMON_KEYS, *load(name).reads}


@pytest.mark.parametrize(
    ("asked", "one_part", "filled"),
    [
        ({"name": "dirichlet"}, False, {"test": "pooled", "test_size": None}),
        ({"name": "iid"}, False, {"test": "part"}),
        ({"name": "iid"}, True, {"test": "pooled"}),
        ({"name": "pathological", "test_size": 7}, False, {"train_size": 500, "test_size": 7}),
        ({"name": "dirichlet-fixed"}, False, {"train_size": 500, "test_size": 100}),
        ({"name": "practical", "test": "drawn"}, False, {"test": "drawn", "test_size": 100}),
        ({"name": "file"}, False, {"test": "part"}),
    ],
)
def test_what_is_filled_in(asked, one_part, filled):
    found = resolve_scheme_options(PartitionConfig(**asked), one_part)
    assert {key: getattr(found, key) for key in filled} == filled
    assert resolve_scheme_options(found, one_part) == found


@pytest.mark.parametrize(
    ("asked", "one_part", "keys"),
    [
        ({"name": "dirichlet", "test_size": 20}, False, ["test_size"]),
        ({"name": "dirichlet", "test": "part", "test_size": 20, "test_share": 0.5}, False, ["test_share", "test_size"]),
        ({"name": "practical", "test": "drawn", "test_size": 20}, False, []),
        ({"name": "practical", "test_share": 0.5}, False, []),
        ({"name": "shards", "test_share": 0.9}, False, ["test_share"]),
        ({"name": "shards", "test_share": 0.9}, True, []),
        ({"name": "shards", "test_size": 5}, False, ["test_size"]),
        ({"name": "iid", "test": "pooled", "test_size": 5}, False, []),
        ({"name": "file", "test_size": 5}, False, ["test_size"]),
    ],
)
def test_keys_of_test_images_are_named_where_these_come_from_elsewhere(asked, one_part, keys):
    found = unused_key_warnings(resolve_scheme_options(PartitionConfig(**asked), one_part))
    assert [line.split(" ")[0] for line in found] == [f"partition.{key}" for key in keys]


def test_where_the_test_images_come_from_is_said():
    (line,) = unused_key_warnings(
        resolve_scheme_options(PartitionConfig(name="dirichlet", test_size=20), one_part=False)
    )
    assert line == "partition.test_size = 20 has no effect: partition dirichlet does not use it with test = pooled"


@pytest.fixture
def stripes(monkeypatch) -> None:
    """A scheme of the user's: client i gets every n-th row, shifted by a key of its own."""

    class Options(PartitionConfig):
        shift: int = Field(0, ge=0, description="where the first client begins")

    def deal(source, options, rng):
        owners = lambda rows: (np.arange(len(rows)) + options.shift) % options.clients  # noqa: E731
        return Assignment(source.train, owners(source.train)), Assignment(source.test, owners(source.test))

    module = ModuleType("stripes")
    module.SCHEME = Scheme(deal, Options=Options)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def stripe(**more) -> list[int]:
    config = Config(partition={"name": "stripes:SCHEME", "clients": 5, **more}, data={"val": 0})
    return partition(EVEN, config, 0).clients[0].train[:2].tolist()


@pytest.mark.usefixtures("stripes")
def test_a_scheme_has_keys_of_its_own():
    assert stripe() == [0, 5]
    assert stripe(shift=1) == [4, 9]
    assert resolve_scheme_options(PartitionConfig(name="stripes:SCHEME", shift=2), False).options == {"shift": 2}
    with pytest.raises(ConfigError, match=r"partition.shift = -1: must be a whole number >= 0"):
        stripe(shift=-1)
    with pytest.raises(ConfigError, match=r"unknown key partition.shit: partition stripes:SCHEME .* mean shift\?"):
        stripe(shit=1)


def module_with(scheme: Scheme) -> ModuleType:
    module = ModuleType("whole")
    module.SCHEME = scheme
    return module


def test_a_scheme_may_make_the_whole_partition(monkeypatch):
    made = partition(EVEN, Config(partition={"name": "iid", "clients": 3}), 0)
    given = Scheme(whole=lambda source, config, seed: made, classless=True)
    monkeypatch.setitem(sys.modules, "whole", module_with(given))
    config = Config(partition={"name": "whole:SCHEME", "clients": 3})
    assert partition(EVEN, config, 1) is made
    asked = PartitionConfig(name="whole:SCHEME", test="pooled", total=50, test_share=0.5)
    found = unused_key_warnings(resolve_scheme_options(asked, False))
    assert [line.split(" ")[0] for line in found] == ["partition.test_share", "partition.total"]


@pytest.mark.parametrize("keys", [{}, {"deal": load("iid").deal, "whole": lambda source, config, seed: None}])
def test_a_scheme_deals_or_makes_the_whole_partition(keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "whole", module_with(Scheme(**keys)))
    with pytest.raises(ConfigError, match="scheme 'whole:SCHEME' must have either `deal` or `whole`"):
        load("whole:SCHEME")
