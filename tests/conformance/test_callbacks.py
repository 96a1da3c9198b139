"""Every method's gradient edit gives a client the same bits alone, on [N], and in a stack of clients, on [K, N]."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from fedbench import methods
from fedbench.module.layout import Slot

SIZE, CLIENTS = 1003, 3
SLOTS = [Slot("first", (500,), 0, 500), Slot("second", (SIZE - 500,), 500, SIZE)]
"""Tensors of the parameters, for an edit that goes tensor by tensor."""


def gradient_edits() -> Iterator[Callable]:
    """Module-level functions of the methods, and what they share, whose first two parameters are g and w."""
    names = [found.name for found in pkgutil.walk_packages(methods.__path__, f"{methods.__name__}.")]
    for name in [*names, "fedbench.engine.pulls"]:
        module = importlib.import_module(name)
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if (
                list(inspect.signature(function).parameters)[:2] == ["g", "w"]
                and function.__module__ == module.__name__
            ):
                yield function


def state_names(edit: Callable) -> list[str]:
    """The tensors that the edit reads of its state: `s.name`."""
    return sorted(set(re.findall(r"\bs\.(\w+)", inspect.getsource(edit))) - {"slots"})


def run(edit: Callable, g: Tensor, w: Tensor, state: dict[str, Tensor]) -> list[Tensor]:
    """Everything that the edit may have written."""
    state = {name: value.clone() for name, value in state.items()}
    g, w = g.clone(), w.clone()
    assert edit(g, w, SimpleNamespace(**state, slots=SLOTS)) is None
    return [g, w, *state.values()]


def alone(row: Tensor) -> Tensor:
    """One client's part of a stacked state: a vector [N], or a scalar []."""
    return row[0] if len(row) == 1 else row


def works(edit: Callable, *arguments) -> bool:
    try:
        run(edit, *arguments)
    except RuntimeError:
        return False
    return True


EDITS = {f"{edit.__module__.rpartition('.')[2]}.{edit.__name__}": edit for edit in gradient_edits()}
del EDITS["pfedgate.through_gate"]  # the way into a training of its own, one client at a time


def test_the_edits_are_found():
    assert "fedprox.proximal_pull" in EDITS


@pytest.mark.parametrize("name", sorted(EDITS))
def test_alone_and_in_a_stack(name):
    edit = EDITS[name]
    names = state_names(edit)
    draw = torch.Generator().manual_seed(0)
    g, w = torch.randn(2, CLIENTS, SIZE, generator=draw)
    tried = 0
    # What is a vector and what a scalar per client is not declared, but for room, which is a vector to write to, and
    # part, which says where: every reading that works alone must work stacked.
    for widths in product(*([SIZE] if name in ("room", "part") else [SIZE, 1] for name in names)):
        state = {key: torch.rand(CLIENTS, width, generator=draw) for key, width in zip(names, widths, strict=True)}
        if "part" in state:
            state["part"] = state["part"].argsort(1)
        rows = [{key: alone(value[k]) for key, value in state.items()} for k in range(CLIENTS)]
        if not works(edit, g[0], w[0], rows[0]):
            continue
        tried += 1
        stacked = run(edit, g, w, state)
        assert not torch.equal(stacked[0], g)
        assert torch.equal(stacked[1], w)
        for k in range(CLIENTS):
            single = run(edit, g[k], w[k], rows[k])
            assert all(torch.equal(a, alone(b[k])) for a, b in zip(single, stacked, strict=True))
    assert tried


@pytest.mark.parametrize("name", sorted(EDITS))
def test_an_edit_keeps_the_kind_of_numbers(name):
    edit = EDITS[name]
    g, w = torch.ones(2, SIZE, dtype=torch.float64)
    state = {key: torch.full((SIZE,), 0.5, dtype=torch.float64) for key in state_names(edit)}
    if "part" in state:
        state["part"] = torch.arange(SIZE)
    kinds = [torch.float64, torch.float64, *(value.dtype for value in state.values())]
    assert [(value.dtype, value.shape) for value in run(edit, g, w, state)] == [(kind, (SIZE,)) for kind in kinds]
