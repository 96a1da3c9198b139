"""Where the space of a method is found, and which grid its paper names."""

from typing import ClassVar

import pytest
from ray import tune

from fedbench import tune_space
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
