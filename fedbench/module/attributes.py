"""Attributes of a module beside its parameters and buffers: they must carry nothing from client to client."""

import pickle
import random
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import Metric, MetricCollection

from fedbench.import_string import MAIN
from fedbench.user_code.files import is_own

OF_LIGHTNING = frozenset(vars(LightningModule()))
"""What PyTorch and Lightning keep in every module."""
LITERALS = (bool, int, float, complex, str, bytes, type(None))
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


class Same:
    """An object that counts by identity. Held, so that no other gets its place in memory."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


class TensorState(Same):
    """A tensor that counts by identity, writes and numbers. keeps: whether it holds a copy of the numbers.

    Writes through `.data` are counted nowhere.
    """

    def __init__(self, value: Tensor, keeps: bool) -> None:
        super().__init__(value)
        self.version = None if value.is_inference() else value._version
        self.numbers = value.detach().clone() if keeps else value.detach()

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, TensorState) and super().__eq__(other) and self.version == other.version):
            return False
        return self.numbers.layout != torch.strided or are_equal(self.numbers, other.numbers)

    __hash__ = None


def are_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and numbers; NaN equals NaN."""
    if torch.equal(one, other):
        return True
    alike = one.shape == other.shape and one.is_floating_point() and other.is_floating_point()
    return alike and torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(one.isnan(), other.isnan())


class Attributes:
    """The attributes of a module and its submodules as they are now, beside parameters, buffers and submodules.

    Containers, iterators, random generators, objects of the user's classes, and modules that are no submodules count by
    what is in them; other objects of libraries by identity. Metrics that are submodules are left out: `Hooks` resets
    them.
    """

    def __init__(self, module: nn.Module) -> None:
        parts = [*module.modules(), *module.parameters(), *module.buffers()]
        self._shared: dict[int, Any] = {id(value): value for value in parts}  # never copied
        for part in module.modules():
            getattr(part, "hparams", None)  # Lightning makes them when they are first read
        self._parts = [
            (name, vars(part), {key: self._kept(value) for key, value in vars(part).items() if key not in OF_LIGHTNING})
            for name, part in module.named_modules()
            if not isinstance(part, Metric | MetricCollection)
        ]

    def loose(self) -> set[str]:
        """The dotted names of tensors that require a gradient and are no parameters."""
        return {
            f"{name}.{key}".lstrip(".")
            for name, variables, _ in self._parts
            for key, value in variables.items()
            if isinstance(value, Tensor) and value.is_leaf and value.requires_grad and id(value) not in self._shared
        }

    def changed(self) -> list[str]:
        """The dotted names of attributes that are no longer as they were."""
        return [f"{name}.{key}".lstrip(".") for name, key, *_ in self._changes()]

    def restore(self) -> list[str]:
        """Makes them as they were; returns the dotted names of those that had changed.

        Without optimisers and schedules, which configure_optimizers makes anew for every fit.
        """
        names = []
        for name, key, variables, kept in list(self._changes()):
            if not isinstance(variables.get(key), Optimizer | LRScheduler):
                names.append(f"{name}.{key}".lstrip("."))
            if key in kept:
                variables[key] = deepcopy(kept[key][1], dict(self._shared))
                kept[key] = self._state(variables[key], []), kept[key][1]
            else:
                del variables[key]
        return names

    def _changes(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        for name, variables, kept in self._parts:
            for key, value in kept.items():
                if value is None:
                    continue
                state, copy = value
                if key not in variables or (variables[key] is not copy and self._state(variables[key]) != state):
                    yield name, key, variables, kept
            for key in variables.keys() - kept.keys() - OF_LIGHTNING:
                yield name, key, variables, kept

    def _kept(self, value: Any) -> tuple[Any, Any] | None:
        """The state of a value, and a copy of it: the value itself if it never changes, or counts by identity.

        None if it cannot be copied, such as a weight that `torch.nn.utils.weight_norm` computes in every pass.
        """
        met: list[Any] = []
        state = self._state(value, met)
        self._shared |= {id(other): other for other in met}
        try:
            return state, deepcopy(value, dict(self._shared))
        except Exception:
            return None

    def _state(self, value: Any, met: list[Any] | None = None, around: tuple[int, ...] = ()) -> Any:
        """What stays equal as long as a value does. around: ids of what holds it.

        met: for a state that is kept; gets what counts by identity.
        """
        if type(value) in LITERALS:
            return value
        if id(value) in self._shared or id(value) in around:
            return Same(value)
        if isinstance(value, Tensor):
            return TensorState(value, keeps=met is not None)
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype, value.tobytes()
        if isinstance(value, torch.Generator):
            return value.get_state().numpy().tobytes()
        inside = (*around, id(value))
        if isinstance(value, dict):
            return [self._state(part, met, inside) for pair in value.items() for part in pair]
        if isinstance(value, list | tuple | deque):
            return [self._state(part, met, inside) for part in value]
        if isinstance(value, set | frozenset):
            return {part if isinstance(part, LITERALS) else id(part) for part in value}
        if isinstance(value, (*GENERATORS, Iterator)) and (pickled := _pickled(value)):
            return pickled
        if isinstance(value, nn.Module) or _is_users(type(value)):  # type: ignore[arg-type]
            return [self._state(part, met, inside) for pair in _fields(value).items() for part in pair]
        if met is not None:
            met.append(value)
        return Same(value)


def _pickled(value: Any) -> bytes | None:
    """A generator of numbers or an iterator as bytes; None for one that cannot be copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of iterators in Python 3.12 and 3.13
        with suppress(Exception):
            return pickle.dumps(value)
    return None


def _fields(value: Any) -> dict[str, Any]:
    """The attributes of an object, also those in slots."""
    values = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with suppress(AttributeError):  # not set yet
                values[name] = getattr(value, name)
    return values | getattr(value, "__dict__", {})


@cache
def _is_users(kind: type) -> bool:
    """Whether it is a class that the user wrote."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind is SimpleNamespace or kind.__module__ == MAIN or (file is not None and is_own(Path(file)))
