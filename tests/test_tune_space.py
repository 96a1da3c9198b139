"""Where the space of a method is found, and which grid its paper names."""

import sys
from typing import ClassVar

import pytest
from ray import tune

import tune_spaces
from fedbench import tune_space
from fedbench.errors import ConfigError
from fedbench.methods.fedper import FedPer
from fedbench.studies.space import Space


class Derived(FedPer):
    """A method of its own that derives from another."""


NAME = f"{__name__}:Derived"


def test_a_method_is_searched_over_its_own_file_or_that_of_the_method_it_derives_from():
    (own, module), (lent, same) = tune_space.find("fedper"), tune_space.find(NAME)
    assert (own, lent) == ("fedper", "fedper")
    assert module is same
    assert list(tune_space.lineage(NAME)) == [NAME, "fedper", "fedavg"]


class Spaced(FedPer):
    """A method with its space on its class."""

    SPACE: ClassVar = {"train.lr": [0.1, 0.3]}
    PAPER: ClassVar = {"train.lr": [0.3]}


class Heir(Spaced):
    """One that derives from it."""


def test_a_space_may_be_on_the_class():
    name = f"{__name__}:Spaced"
    assert tune_space.find(name) == (name, Spaced)
    assert tune_space.paper_axes(name) == {"train.lr": [0.3]}
    assert Space.of(name).axes == {"train.lr": [0.1, 0.3]}
    assert tune_space.find(f"{__name__}:Heir") == ("fedper", tune_space.module_of("fedper"))


@pytest.mark.parametrize("space", [5, {"train.lr": 3}, {1: [2]}, {"train.lr": "0.1"}])
def test_a_space_that_is_none_is_refused(monkeypatch, space):
    monkeypatch.setattr(Spaced, "SPACE", space)
    with pytest.raises(ConfigError, match=r"Spaced: SPACE = .*: keys with lists of values"):
        Space.of(f"{__name__}:Spaced")


@pytest.mark.parametrize(
    ("code", "said"),
    [("X = 1", "broken.py has no SPACE: keys"), ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero")],
)
def test_a_broken_file_is_named(monkeypatch, tmp_path, code, said):
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.setattr(tune_spaces, "__path__", [str(tmp_path)])
    monkeypatch.setattr(tune_space, "file_of", lambda method: "broken")
    monkeypatch.delitem(sys.modules, "tune_spaces.broken", raising=False)
    with pytest.raises(ConfigError, match=said):
        tune_space.find("fedper")


def test_the_paper_of_another_method_is_not_its_paper():
    assert tune_space.paper_axes("co-pfl")
    assert tune_space.paper_axes(NAME) == {}


@pytest.mark.parametrize(("name", "file"), [("co-pfl", "co_pfl"), ("pk.mod:MyNet", "mynet")])
def test_the_name_of_a_methods_file(name, file):
    assert tune_space.file_of(name) == file


def test_values_are_lists_however_they_are_written_and_distributions_stay():
    uniform = tune.uniform(0, 1)
    assert tune_space.as_list((1, 2)) == tune_space.as_list(tune.choice([1, 2])) == [1, 2]
    assert tune_space.as_list(tune.grid_search([1, 2])) == [1, 2]
    assert tune_space.as_list(uniform) is uniform
