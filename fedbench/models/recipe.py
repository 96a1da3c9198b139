"""How to build a network again in a process that knows neither the run nor its data: imports and an expression."""

import ast
from dataclasses import dataclass
from typing import Any

from lightning import LightningModule

from fedbench.errors import ConfigError
from fedbench.import_string import is_held, only_here
from fedbench.models import is_part, load, part_name, resolve_model, shape_arguments


@dataclass(frozen=True)
class Recipe:
    """imports: lines of Python; build: the expression that builds the network after them."""

    imports: tuple[str, ...]
    build: str


def make_recipe(name: str, input_shape: Any, classes: int, options: dict[str, Any]) -> Recipe:
    """The recipe of `build` with these arguments.

    Raises ConfigError if no other process can import the class, or if an option has no literal.
    """
    kind = load(resolve_model(name, input_shape))
    path = f"{kind.__module__}:{kind.__qualname__}"
    if only_here(path) or not is_held(kind):
        raise ConfigError(f"the class of model {name} cannot be imported elsewhere")
    imports: set[str] = set()
    build = _call(path, shape_arguments(kind, input_shape, classes) | options, imports)
    return Recipe(tuple(sorted(imports)), build)


def calls_after(module: LightningModule) -> tuple[str, ...]:
    """The hooks by which a module builds the rest of itself after its constructor."""
    hooks = {"setup": 'setup("fit")', "configure_model": "configure_model()"}
    return tuple(
        call for name, call in hooks.items() if getattr(type(module), name) is not getattr(LightningModule, name)
    )


def _call(path: str, arguments: dict[str, Any], imports: set[str]) -> str:
    module, _, name = path.partition(":")
    imports.add(f"from {module} import {name.partition('.')[0]}")
    return f"{name}({', '.join(f'{key}={_literal(value, imports)}' for key, value in arguments.items())})"


def _literal(value: Any, imports: set[str]) -> str:
    if is_part(value):
        return _call(part_name(value), value.get("init_args") or {}, imports)
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise ConfigError(f"the model's argument {text} cannot be written down")
    return text
