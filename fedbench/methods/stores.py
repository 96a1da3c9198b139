"""What a method's code can keep beside declared fields, and must not: class variables, globals, mutable defaults.

It would carry something from client to client and from round to round, as far as both are in one process. Watched are
the user's classes and the modules that define them, never those of fedbench. Containers, tensors, random generators and
objects of the user's classes count by what is in them, all others by identity, so that caches of functools may fill.
"""

import inspect
import itertools
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from types import FunctionType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.methods.messages import Message
from fedbench.module.weights import Weights

NOT_WATCHED = ("fedbench", "torch", "lightning", "pydantic", "typing_extensions")
LITERALS = (bool, int, float, complex, str, bytes, type(None))
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
CONTAINERS = (dict, list, tuple, deque, set, bytearray, Message, Weights, SimpleNamespace, nn.Module)
MOST_ITEMS, MOST_BYTES, DEEPEST = 1000, 1 << 18, 4
"""What is larger, or lies deeper, counts by identity and length."""
FIRST_CALLS, EVERY = 8, 16
"""Calls of a hook that are watched: so many, then one of so many."""

State = tuple[Any, Any]
"""A value, and what is in it."""
Space = tuple[str, Callable[[], dict[str, Any]]]
"""Words with a place for a name, and the values by name."""

_calls: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()


class Stores:
    """All values that code of a method's class could change, as they are now."""

    def __init__(self, kind: type) -> None:
        self._spaces, self._own = spaces_of(kind)
        self._before = [self._states(values()) for _, values in self._spaces]

    @classmethod
    def of_call(cls, method: Any, hook: str) -> "Stores | None":
        """The stores before a call of a hook, if this one is watched."""
        kind: Any = type(method)
        if not spaces_of(kind)[0]:
            return None
        calls = _calls.setdefault(method, Counter())
        calls[hook] += 1
        return cls(kind) if calls[hook] <= FIRST_CALLS or calls[hook] % EVERY == 0 else None

    def first_change(self) -> tuple[str, Any] | None:
        """The first value that is no longer the same: its place in words, and what is there now."""
        for (words, values), before in zip(self._spaces, self._before, strict=True):
            now = self._states(values())
            for name in {**before, **now}:
                if name not in before or name not in now or not is_same(before[name], now[name]):
                    return words.format(name), now.get(name, (None, None))[0]
        return None

    def _states(self, values: dict[str, Any]) -> dict[str, State]:
        return {name: self._state(value) for name, value in values.items() if not name.startswith("__")}

    def _state(self, value: Any, depth: int = 0) -> State:
        kind: Any = type(value)
        if not can_change(kind, self._own) or depth > DEEPEST:
            return value, None
        if isinstance(value, Tensor):
            return value, None if value.is_inference() else value._version
        if isinstance(value, np.ndarray):
            return value, value.tobytes() if value.nbytes <= MOST_BYTES and not value.dtype.hasobject else None
        if isinstance(value, GENERATORS):
            return value, position_of(value)
        if isinstance(value, itertools.count):
            return value, repr(value)
        items = items_of(value)
        return value, len(items) if len(items) > MOST_ITEMS else [self._state(item, depth + 1) for item in items]


@cache
def can_change(kind: type, names: frozenset[str]) -> bool:
    """Whether a value of a type counts by what is in it. names: of the user's modules."""
    return kind.__module__ in names or issubclass(kind, (Tensor, np.ndarray, itertools.count, *GENERATORS, *CONTAINERS))


def items_of(value: Any) -> list[Any]:
    """What is in a container or an object."""
    if isinstance(value, dict):
        return [part for pair in [*value.items()] for part in pair]
    if isinstance(value, list | tuple | deque | set | bytearray):
        return [*value]
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    return items_of(value.tensors if isinstance(value, Message) else getattr(value, "__dict__", {}))


def position_of(generator: Any) -> Any:
    """The state of a random generator, comparable."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    return repr(generator.getstate() if isinstance(generator, random.Random) else generator.get_state())


def is_same(one: State, other: State) -> bool:
    """Whether a value is unchanged. Numbers, strings and tuples of them may be made anew."""
    (value, inside), (now, within) = one, other
    if value is now and inside is within:
        return True
    if type(value) is not type(now):
        return False
    if isinstance(value, LITERALS):
        return value is now or bool(value == now or (value != value and now != now))  # NaN equals NaN
    if value is not now and not isinstance(value, tuple):
        return False
    if isinstance(inside, list) and isinstance(within, list):
        return len(inside) == len(within) and all(map(is_same, inside, within))
    return bool(inside == within)


@cache
def spaces_of(kind: type) -> tuple[list[Space], frozenset[str]]:
    """Where the code of a method could keep something, and the names of the modules that it comes from."""
    bases = [part for part in kind.__mro__ if is_watched(part.__module__)]
    classes = [each for part in bases for each in (part, *_nested(part))]
    modules = {
        id(variables): variables for each in classes for f in _functions(vars(each)) for variables in [f.__globals__]
    }
    modules = {key: variables for key, variables in modules.items() if is_watched(str(variables.get("__name__", "")))}
    functions = {id(f): f for each in classes for f in _functions(vars(each)) if id(f.__globals__) in modules}
    functions |= {id(f): f for scope in modules.values() for f in _functions(scope) if f.__globals__ is scope}
    spaces: list[Space] = [
        (f"the class variable {each.__qualname__}.{{}}", partial(dict, vars(each))) for each in classes
    ]
    for variables in modules.values():
        spaces.append((f"{{}}, a global of module {variables.get('__name__')}", partial(dict, variables)))
    for f in functions.values():
        spaces.append((f"the attribute {{}} of function {f.__qualname__}", partial(dict, vars(f))))
        if defaults := _defaults(f):
            spaces.append((f"the default of {f.__qualname__}'s argument {{}}", partial(dict, defaults)))
        if f.__closure__:
            spaces.append((f"{{}}, a variable around {f.__qualname__}", partial(_closed_over, f)))
    names = (each.__module__ for each in bases)
    return spaces, frozenset(names)


def is_watched(module: str) -> bool:
    """Whether a module is neither fedbench's nor a library's that methods are built on."""
    root = module.partition(".")[0]
    return root == "__main__" or (root not in NOT_WATCHED and root not in sys.stdlib_module_names)


def _nested(kind: type) -> Iterator[type]:
    """The classes that are defined in a class, such as State."""
    for value in vars(kind).values():
        if isinstance(value, type) and value.__qualname__.startswith(f"{kind.__qualname__}."):
            yield value
            yield from _nested(value)


def _functions(values: Any) -> Iterator[FunctionType]:
    """The functions among these values, without what decorators have put around them."""
    for value in [*values.values()]:
        if isinstance(value, property | cached_property):
            value = value.fget if isinstance(value, property) else value.func
        value = getattr(value, "__func__", value)
        if isinstance(value, FunctionType):
            yield inspect.unwrap(value)


def _defaults(function: FunctionType) -> dict[str, Any]:
    """The defaults of a function by argument."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _closed_over(function: FunctionType) -> dict[str, Any]:
    """The variables of enclosing functions that a function reads or writes."""
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return variables
