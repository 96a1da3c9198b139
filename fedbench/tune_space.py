"""A method's tuning space, on its class or in tune_spaces/.

SPACE and CONSTRAINT, PAPER, its paper's grid, and RATES_FOR, for which the rates of both are.

A method without any is tuned over that of the nearest method that its class derives from.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import extend_path
from typing import Any

from fedbench import methods
from fedbench.errors import ConfigError, as_config_error
from fedbench.import_string import AT
from fedbench.methods.base import Method
from fedbench.methods.class_check import SEARCHED
from fedbench.user_code import name_of
from fedbench.user_code.misspelt import misspellings

OPTIMIZERS = ("sgd", "adam", "adamw", "module")
"""The optimisers for which the rates of a space may be; module: factors of the rates of a model's own optimiser."""
_OURS = Path(__file__).parents[1] / "tune_spaces"
EXPECTED = 'keys with lists of values or distributions are expected, for example {"train.lr": [0.01, 0.1]}'


def find(method: str) -> tuple[str, Any] | None:
    """Where the space of the method is, or of the nearest one that its class derives from, with that method's name."""
    return next(((name, module) for name in lineage(method) if (module := module_of(name)) is not None), None)


def paper_axes(method: str) -> dict[str, Any]:
    """Values by key of the grid of the method's paper; empty if the paper names none.

    Read only from the method's own file: the paper of another method is not its paper.
    """
    module = module_of(method)
    return checked_axes(module, "PAPER") if getattr(module, "PAPER", None) else {}


def lineage(method: str) -> Iterator[str]:
    """The method and those that its class derives from, nearest first; fedavg for the base class."""
    yield method
    for kind in methods.load(method).__mro__[1:]:
        name = kind.__module__.rpartition(".")[2].replace("_", "-")
        if kind is Method:
            yield "fedavg"
        elif kind.__module__.startswith(f"{methods.__name__}."):
            yield from [name] if name in methods.names() else []
        elif issubclass(kind, Method):
            yield name_of(kind)


def file_of(method: str) -> str:
    """The name of a method's file in tune_spaces."""
    name = method.rpartition(":")[2].rpartition(".")[2].partition(AT)[0]  # a local class: its own name
    return name.replace("-", "_").lower()


def module_of(method: str) -> Any:
    """The class, if it has a space of its own, or else tune_spaces/<method>.py, if there is one.

    A file named like one of fedbench's methods is that method's, also where a user's class has the same name.
    """
    kind, file = methods.load(method), file_of(method)
    if names := [name for name in SEARCHED if name in vars(kind)]:
        if "SPACE" not in names:
            raise ConfigError(f"{kind.__qualname__} has {names[0]} but no SPACE beside it: {EXPECTED}")
        return kind
    if ":" in method and file.replace("_", "-") in methods.names():
        return None
    name = f"tune_spaces.{file}"
    try:
        with as_config_error(f"{name} cannot be imported"):
            _find_all_folders()
            module = import_module(name)
    except ConfigError as error:
        if getattr(error.__cause__, "name", None) not in (name, "tune_spaces"):
            raise
        return None
    for written, meant in misspellings(vars(module).keys(), SEARCHED):
        raise ConfigError(f"{name.replace('.', '/')}.py: {written} has no effect: did you mean {meant}?")
    if not hasattr(module, "SPACE"):
        raise ConfigError(f"{name.replace('.', '/')}.py has no SPACE: {EXPECTED}")
    return module


def _find_all_folders() -> None:
    """Has every folder tune_spaces on the path read, with or without an __init__.py, the working folder's first."""
    package = import_module("tune_spaces")
    package.__path__ = list(dict.fromkeys([*extend_path([], package.__name__), *package.__path__]))


def checked_axes(module: Any, which: str = "SPACE") -> dict[str, Any]:
    """SPACE or PAPER of a file or class: lists of values, or distributions, by key. Raises ConfigError."""
    axes = getattr(module, which)
    owner = getattr(module, "__qualname__", module.__name__)
    if not isinstance(axes, Mapping) or not all(isinstance(key, str) and is_axis(v) for key, v in axes.items()):
        raise ConfigError(f"{owner}: {which} = {axes!r}: {EXPECTED}")
    return {key: as_list(values) for key, values in axes.items()}


def optimizer_of(module: Any) -> str | None:
    """RATES_FOR of a file or class: for which optimiser its rates are; fedbench's own files say it for others than sgd.

    None if a user's file or class says nothing. Raises ConfigError.
    """
    optimizer = vars(module).get("RATES_FOR")
    if optimizer is None:
        file = Path(getattr(module, "__file__", None) or "")
        is_ours = file.parent == _OURS and file.stem.replace("_", "-") in methods.METHODS.built_in
        return "sgd" if is_ours else None
    if optimizer not in OPTIMIZERS:
        owner = getattr(module, "__qualname__", module.__name__)
        raise ConfigError(f"{owner}: RATES_FOR = {optimizer!r}: must be one of {', '.join(OPTIMIZERS)}")
    return str(optimizer)


def is_axis(values: Any) -> bool:
    """Whether it is several values or a distribution."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    return several or hasattr(values, "sample")


def as_list(values: Any) -> Any:
    """Values as a list, also those of `tune.choice` and `tune.grid_search`; other distributions unchanged."""
    if isinstance(values, Mapping) and set(values) == {"grid_search"}:
        return list(values["grid_search"])
    if hasattr(values, "categories"):
        return list(values.categories)
    if hasattr(values, "tolist"):  # an array; its numbers would not go into JSON
        return list(values.tolist())
    return values if hasattr(values, "sample") else list(values)
