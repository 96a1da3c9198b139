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
    assert Space.of(name).values == {"train.lr": [0.1, 0.3]}
    assert tune_space.find(f"{__name__}:Heir") == (name, Spaced)
    assert list(tune_space.lineage(f"{__name__}:Heir")) == [f"{__name__}:Heir", name, "fedper", "fedavg"]


class FedProx(Spaced):
    """A method of the user's with the name of one of fedbench's."""

    SPACE: ClassVar = {"train.lr": [0.5]}


class FedRep(FedPer):
    """Another, without a space of its own."""


def test_a_class_named_like_one_of_fedbenchs_methods_has_its_own_space():
    assert Space.of(f"{__name__}:FedProx").values == {"train.lr": [0.5]}
    assert tune_space.find(f"{__name__}:FedRep") == ("fedper", tune_space.module_of("fedper"))


class Bound(FedPer):
    """A method with a constraint on a space that it does not have."""

    def CONSTRAINT(cell):
        return False


def test_a_constraint_without_a_space_is_refused():
    for find in (Space.of, lambda method: Space.given_for(method, {"train.lr": [0.1]})):
        with pytest.raises(ConfigError, match="Bound has CONSTRAINT but no SPACE beside it: keys with lists"):
            find(f"{__name__}:Bound")


@pytest.mark.parametrize("package", [True, False])
def test_a_folder_of_the_users_stands_beside_that_of_fedbench(monkeypatch, tmp_path, package):
    (tmp_path / "tune_spaces").mkdir()
    (tmp_path / "tune_spaces" / "derived.py").write_text('SPACE = {"train.lr": [0.25]}')
    if package:
        (tmp_path / "tune_spaces" / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, "tune_spaces")
    else:
        monkeypatch.setattr(tune_spaces, "__path__", tune_spaces.__path__)
    monkeypatch.delitem(sys.modules, "tune_spaces.derived", raising=False)
    monkeypatch.delitem(sys.modules, "tune_spaces.ditto", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert Space.of(NAME).values == {"train.lr": [0.25]}
        assert "method.lam" in Space.of("ditto").values
    finally:
        sys.modules.pop("tune_spaces.derived", None)
        sys.modules.pop("tune_spaces", None) if package else None


@pytest.mark.parametrize("space", [5, {"train.lr": 3}, {1: [2]}, {"train.lr": "0.1"}])
def test_a_space_that_is_none_is_refused(monkeypatch, space):
    monkeypatch.setattr(Spaced, "SPACE", space)
    with pytest.raises(ConfigError, match=r"Spaced: SPACE = .*: keys with lists of values"):
        Space.of(f"{__name__}:Spaced")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("X = 1", "broken.py has no SPACE: keys"),
        ("SPACES = {}", "broken.py: SPACES has no effect: did you mean SPACE?"),
        ("SPACE = {'train.lr': [0.1]}\nCONSTRAINTS = len", "CONSTRAINTS has no effect: did you mean CONSTRAINT"),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
    ],
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
