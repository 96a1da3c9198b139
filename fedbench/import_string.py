"""Imports users' classes and functions, named package.module:name."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from fedbench.errors import ConfigError, nearest, place_of

BELOW_MAIN = 'put what a script does below `if __name__ == "__main__":`'
OTHER_LIGHTNING = "pytorch_lightning"
SAME_CLASSES = f"write lightning.pytorch for {OTHER_LIGHTNING} in its imports, the classes are the same"
MAIN, AT = "__main__", "@"
"""The module of a notebook or script, and the separator before the digits in names of objects that no module holds."""

_sent_objects: dict[str, object] = {}
"""Classes and functions by name that other processes cannot import."""


def only_here(path: str) -> bool:
    """Whether other processes cannot import `package.module:name`."""
    return path.partition(":")[0] == MAIN or AT in path


def keep(path: str, thing: object) -> None:
    """Makes `package.module:name` known to this process if it cannot be imported."""
    _sent_objects[path] = thing


def kept_name(thing: object) -> str | None:
    """The name of a kept class or function that its module does not hold."""
    return next((path for path, known in _sent_objects.items() if known is thing and AT in path), None)


def own_object(path: str) -> object | None:
    """The object of `package.module:name` if this process has it, else None."""
    module, _, name = path.partition(":")
    return attribute(sys.modules.get(module), name) or _sent_objects.get(path)


def attribute(thing: object, name: str) -> object | None:
    """The object `Outer.Inner` in a module, or None."""
    for word in name.split("."):
        thing = getattr(thing, word, None)
    return thing


def is_held(thing: Any) -> bool:
    """Whether the module holds the class or function under its own name."""
    return attribute(sys.modules.get(str(thing.__module__)), thing.__qualname__) is thing


def import_string(path: str, what: str) -> object:
    """The object of `package.module:name`. Raises ConfigError; `what` names the option in it."""
    module, _, name = path.partition(":")
    if only_here(path):
        if (here := own_object(path)) is not None:
            return here
        raise ConfigError(
            f"{what} '{path}': only the process that defines {name.partition(AT)[0]} knows it: write it into a file, "
            "or stay in that process, with resources.hosts = 0 and, in a grid or a comparison, trials=1"
        )
    source = imported_module(path, what)
    if (thing := attribute(source, name)) is None:
        names = [n for n in vars(source) if not n.startswith("_")]
        raise ConfigError(f"{what} '{path}': module {module} has no {name or 'empty name'}; {nearest(name, names)}")
    return thing


def imported_module(path: str, what: str) -> ModuleType:
    """The module of `package.module:name`, or `package.module` itself. Raises ConfigError."""
    module, _, name = path.partition(":")
    if module.endswith(".py") or "/" in module:
        raise ConfigError(f"{what} '{path}': a module is expected, not a file: {_as_module(Path(module), name)}")
    try:
        with _command_line_refused():
            return import_module(module)
    except ImportError as error:
        hint = f"; {SAME_CLASSES}" if (error.name or "").partition(".")[0] == OTHER_LIGHTNING else ""
        raise ConfigError(f"{what} '{path}': module {module} cannot be imported ({error}){hint}") from error
    except CommandLineError as error:
        raise ConfigError(
            f"{what} '{path}': module {module} reads the command line when it is imported ({error}); {BELOW_MAIN}"
        ) from error
    except SystemExit as error:
        raise ConfigError(
            f"{what} '{path}': module {module} ends the program when it is imported (exit code {error.code}); "
            f"{BELOW_MAIN}"
        ) from error
    except ConfigError:  # of a class that fedbench refuses as soon as it is made
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"  # a SyntaxError names its line itself
        why += "" if isinstance(error, SyntaxError) else f", {place_of(error)}"
        raise ConfigError(f"{what} '{path}': importing {module} failed ({why})") from error


def _as_module(file: Path, attribute: str) -> str:
    """Describes how to name the module in a file."""
    file = file.with_suffix("") if file.suffix == ".py" else file
    if file.is_absolute() or ".." in file.parts:
        return f"start in {file.parent} and write {file.name}:{attribute}"
    return f"leave out .py, {'.'.join(file.parts)}:{attribute}"


class CommandLineError(Exception):
    """A user's argument parser found words that it does not know."""


@contextmanager
def _command_line_refused() -> Iterator[None]:
    """Makes argparse raise its message in this block instead of printing its usage and exiting."""

    def error(parser: ArgumentParser, message: str) -> NoReturn:
        raise CommandLineError(message)

    before = ArgumentParser.error
    ArgumentParser.error = error  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ArgumentParser.error = before  # type: ignore[method-assign]
