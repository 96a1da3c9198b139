"""Every method's space, if it has one, holds keys and values that a configuration takes."""

from importlib import import_module
from itertools import product

import pytest

from fedbench import methods, tune_space
from fedbench.config import Config
from fedbench.config.keys import nest

NAMES = sorted(name for name in methods.names() if tune_space.module_of(name) is not None)


@pytest.mark.parametrize("which", ["SPACE", "PAPER"])
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_a_legal_configuration(name, which):
    space = getattr(tune_space.module_of(name), which, {})
    for point in product(*space.values()):
        config = Config(**nest({"method.name": name, **dict(zip(space, point, strict=True))}))
        methods.load(name).Options(**config.method.options)


@pytest.mark.parametrize("name", NAMES)
def test_a_space_tunes_the_rate_and_stays_small(name):
    module = tune_space.module_of(name)
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


@pytest.mark.parametrize(("name", "bound"), [("co_pfl", "budget"), ("fedselect", "limit")])
def test_masks_select_no_more_at_once_than_they_may_ever_hold(name, bound):
    module = import_module(f"tune_spaces.{name}")
    cells = [dict(zip(module.PAPER, point, strict=True)) for point in product(*module.PAPER.values())]
    kept = [cell for cell in cells if module.CONSTRAINT(cell)]
    assert 0 < len(kept) < len(cells)
    rate, most = "method.personalization_rate", f"method.personalization_{bound}"
    assert all(cell[rate] <= cell[most] for cell in kept)
    assert module.CONSTRAINT({rate: 0.5, most: 0.5})
