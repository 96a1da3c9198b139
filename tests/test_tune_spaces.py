"""Every method has a space whose keys and values a configuration takes."""

from importlib import import_module
from itertools import product

import pytest

from fedbench import methods
from fedbench.config import Config, nested

NAMES = sorted(methods.METHODS)


@pytest.mark.parametrize("which", ["SPACE", "PAPER"])
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_a_legal_configuration(name, which):
    space = getattr(import_module(f"tune_spaces.{name.replace('-', '_')}"), which)
    for point in product(*space.values()):
        config = Config(**nested({"method.name": name, **dict(zip(space, point, strict=True))}))
        methods.load(name).Options(**config.method.options)


@pytest.mark.parametrize("name", NAMES)
def test_a_space_tunes_the_rate_and_stays_small(name):
    module = import_module(f"tune_spaces.{name.replace('-', '_')}")
    cells = 1
    for values in module.SPACE.values():
        assert len(values) == len(set(values))
        cells *= len(values)
    assert "train.lr" in module.SPACE
    assert cells <= 12
    assert module.__doc__


def test_fedprox_leaves_out_what_diverges():
    constraint = import_module("tune_spaces.fedprox").CONSTRAINT
    assert constraint({"method.mu": 1.0, "train.lr": 0.1})
    assert not constraint({"method.mu": 20.0, "train.lr": 0.1})
