"""Checks how the class of a method is written, when it is loaded."""

import inspect
from collections.abc import Set
from dataclasses import MISSING, fields
from typing import Any

from pydantic import ValidationError

from fedbench.config import TrainConfig
from fedbench.config.words import explain
from fedbench.errors import ConfigError, place_of_code
from fedbench.methods.base import NEEDS, ExtraPass, Method
from fedbench.methods.client import PrivateState
from fedbench.methods.contract import RETURNS
from fedbench.methods.server import ServerState
from fedbench.results.trace import Trace
from fedbench.user_code.misspelt import misspelt_names

OTHER_HOOKS = {
    *("private", "frozen", "check", "weights", "steps", "adapt_model", "common_shapes"),
    *("trainers", "makes_steps"),
}
TRAITS = {"after_fit": ("fit", "after_agg", "global"), "optimizer": ("run", "own", "plain")}
SEARCHED = ("SPACE", "PAPER", "CONSTRAINT", "RATES_FOR")
"""Attributes of a class that a search reads (`tune_space`)."""


def check_class(kind: type[Method]) -> None:
    """Raises ConfigError with file and line if the state, options, hooks or traits of a class are invalid."""
    _check_state(kind, "State", PrivateState)
    _check_state(kind, "Server", ServerState)
    if not (isinstance(kind.Options, type) and issubclass(kind.Options, Method.Options)):
        code = kind.Options if isinstance(kind.Options, type) else kind
        raise _mistake(code, f"{kind.__name__}.Options must derive from Method.Options")
    for name in RETURNS.keys() | OTHER_HOOKS:
        _check_hook(kind, name)
    _check_names(kind)
    _check_traits(kind)
    try:
        TrainConfig(**kind.train_defaults)
    except ValidationError as error:
        line = explain(error, TrainConfig, "train.")
        raise _mistake(kind, f"{kind.__name__}.train_defaults: {line}") from None


def _check_traits(kind: type[Method]) -> None:
    """Raises ConfigError if a trait has an invalid value."""
    for name, legal in TRAITS.items():
        if (value := getattr(kind, name)) not in legal:
            raise _mistake(kind, f"{kind.__name__}.{name} = {value!r}: must be one of {', '.join(legal)}")
    if not isinstance(kind.needs, Set) or kind.needs - NEEDS.keys():
        raise _mistake(kind, f"{kind.__name__}.needs = {kind.needs!r}: must be a frozenset of {', '.join(NEEDS)}")
    if not isinstance(kind.traces, tuple) or not all(isinstance(trace, Trace) for trace in kind.traces):
        raise _mistake(kind, f"{kind.__name__}.traces must be a tuple of fedbench.results.trace.Trace")


def _check_state(kind: type[Method], name: str, base: type[PrivateState | ServerState]) -> None:
    """Raises ConfigError if an annotation is no field or a field has no default."""
    state, called = getattr(kind, name), f"{kind.__name__}.{name}"
    if not (isinstance(state, type) and issubclass(state, base)):
        raise _mistake(state, f"{called} must derive from {base.__name__}, as a dataclass")
    known, given = {f.name for f in fields(state)}, {f.name for f in fields(base)}
    for part in state.__mro__[: state.__mro__.index(base)]:
        if lost := sorted(inspect.get_annotations(part).keys() - known):
            line = f"{called} is no dataclass, so {lost[0]} would be lost"
            raise _mistake(part, f"{line}: write @dataclass above it")
    for f in fields(state):
        if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise _mistake(state, f"{called}.{f.name} has no default, which every client starts with: add one")


def _check_hook(kind: type[Method], name: str) -> None:
    """Raises ConfigError if a hook's signature differs from the base class's."""
    base, own = (inspect.getattr_static(cls, name, None) for cls in (ExtraPass, kind))
    if own is None or own is base:
        return
    if isinstance(base, classmethod) and not isinstance(own, classmethod):
        raise _mistake(own, f"{kind.__name__}.{name} must be a class method: write @classmethod above it")
    base, own = (getattr(hook, "__func__", hook) for hook in (base, own))
    parameters = list(inspect.signature(base).parameters)
    try:
        inspect.signature(own).bind(*parameters)
    except TypeError as error:
        raise _mistake(own, f"{kind.__name__}.{name} must take {', '.join(parameters)}: {error}") from None


def _check_names(kind: type[Method]) -> None:
    """Raises ConfigError for a name that nothing reads: misspelt, or a hook of an extra pass that is not made."""
    for part in kind.__mro__[: kind.__mro__.index(Method)]:
        if not issubclass(kind, ExtraPass) and (lost := {"question", "answer", "conclude"} & vars(part).keys()):
            raise _mistake(part, f"{kind.__name__}.{min(lost)} is never called: derive {kind.__name__} from ExtraPass")
    known = [*(name for name in dir(ExtraPass) if not name.startswith("_")), *SEARCHED]
    for part, name, meant in misspelt_names(kind, Method, known):
        code = vars(part)[name] if inspect.isroutine(vars(part)[name]) else part
        raise _mistake(code, f"{kind.__name__}.{name} has no effect: did you mean {meant}? (if not, name it _{name})")


def _mistake(code: Any, text: str) -> ConfigError:
    return ConfigError(f"{text} ({place_of_code(code)})")
