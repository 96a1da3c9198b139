"""Classes and functions of the user, named as package.module:name, on the command line or by themselves."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fedbench.errors import ConfigError, nearest, place_of

BELOW_MAIN = 'put what a script does below `if __name__ == "__main__":`'
OTHER_LIGHTNING = "pytorch_lightning"
SAME_CLASSES = f"write lightning.pytorch for {OTHER_LIGHTNING} in its imports, the classes are the same"
MAIN, INSIDE = "__main__", "<locals>"
"""The module of a notebook or script, and what stands in the names of classes that a function makes."""

_sent_objects: dict[str, object] = {}
"""Classes and functions that no import finds in another process, by name."""


def name_of(thing: Any) -> str:
    """The name under which `import_string` finds a class or function; of a method of fedbench, that of its file."""
    module, name = thing.__module__, thing.__qualname__
    if module.startswith("fedbench.methods."):
        return str(module.rpartition(".")[2].replace("_", "-"))
    path = f"{module}:{name}"
    if only_here(path):
        _sent_objects[path] = thing
    return path


def only_here(path: str) -> bool:
    """Whether no import finds what `package.module:name` names in another process."""
    module, _, name = path.partition(":")
    return module == MAIN or INSIDE in name


def objects_to_send(paths: Iterable[str]) -> dict[str, object]:
    """What only this process knows of these, to be taken to another one."""
    return {path: found for path in paths if only_here(path) and (found := own_object(path)) is not None}


def receive_objects(things: Mapping[str, object]) -> None:
    """Let this process know what another one has sent."""
    _sent_objects.update(things)


def own_object(path: str) -> object | None:
    """What `package.module:name` names, as far as this process has it; none where it does not."""
    module, _, name = path.partition(":")
    return getattr(sys.modules.get(module), name, None) or _sent_objects.get(path)


def import_string(path: str, what: str) -> object:
    """What `package.module:name` names. Raises ConfigError; `what` says in it what was asked for."""
    if only_here(path) and (here := own_object(path)) is not None:
        return here
    module, _, attribute = path.partition(":")
    if module.endswith(".py") or "/" in module:
        raise ConfigError(f"{what} '{path}': a module is expected, not a file: {_as_module(Path(module), attribute)}")
    try:
        with _command_line_refused():
            found: object = import_module(module)
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
    except Exception as error:
        why = f"{type(error).__name__}: {error}"  # a SyntaxError names its line itself
        why += "" if isinstance(error, SyntaxError) else f", {place_of(error)}"
        raise ConfigError(f"{what} '{path}': importing {module} failed ({why})") from error
    if module == MAIN and not hasattr(found, attribute):
        raise ConfigError(
            f"{what} '{path}': only the process that defines {attribute} knows it: write it into a file, or stay in "
            "that process, with resources.hosts = 0 and, in a grid or a comparison, at_once=1"
        )
    if not hasattr(found, attribute):
        names = [n for n in vars(found) if not n.startswith("_")]
        raise ConfigError(
            f"{what} '{path}': module {module} has no {attribute or 'empty name'}; {nearest(attribute, names)}"
        )
    return getattr(found, attribute)


def _as_module(file: Path, attribute: str) -> str:
    """How the module in a file is named, in words."""
    file = file.with_suffix("") if file.suffix == ".py" else file
    if file.is_absolute() or ".." in file.parts:
        return f"start in {file.parent} and write {file.name}:{attribute}"
    return f"leave out .py, {'.'.join(file.parts)}:{attribute}"


class CommandLineError(Exception):
    """A parser of the user's found words that it does not know."""


@contextmanager
def _command_line_refused() -> Iterator[None]:
    """argparse raises what it says in a block, instead of printing its usage and ending the process."""

    def error(parser: ArgumentParser, message: str) -> NoReturn:
        raise CommandLineError(message)

    before = ArgumentParser.error
    ArgumentParser.error = error  # type: ignore[method-assign]
    try:
        yield
    finally:
        ArgumentParser.error = before  # type: ignore[method-assign]
