"""Classes and functions of the user, named on the command line as package.module:name."""

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from fedbench.errors import ConfigError, nearest, place_of

BELOW_MAIN = 'put what a script does below `if __name__ == "__main__":`'
OTHER_LIGHTNING = "pytorch_lightning"
SAME_CLASSES = f"write lightning.pytorch for {OTHER_LIGHTNING} in its imports, the classes are the same"


def import_string(path: str, what: str) -> object:
    """What `package.module:name` names. Raises ConfigError; `what` says in it what was asked for."""
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
    if module == "__main__" and not hasattr(found, attribute):
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
