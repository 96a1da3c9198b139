"""`fedbench completion SHELL`: a script by which a shell completes commands, flags and names."""

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import shtab
from pydantic.fields import FieldInfo

from fedbench import tasks
from fedbench.aggregation import rules
from fedbench.cli import COMMANDS, TABLE, command, line_of
from fedbench.cli.exits import OK
from fedbench.cli.flags import COMMON, Flag, flag_of, keys_of_command
from fedbench.cli.parse import parse
from fedbench.data import sources
from fedbench.data.partitions import scheme
from fedbench.errors import ConfigError, nearest
from fedbench.methods import METHODS
from fedbench.models import MODELS

SHELLS = ("bash", "zsh", "fish")
USAGE = """usage: fedbench completion bash|zsh|fish

Prints a script by which the shell completes fedbench's commands, flags, and names of methods, data sets, partitions
and models. It starts no Python; write it again after installing a package that adds names:

  fedbench completion bash > ~/.local/share/bash-completion/completions/fedbench
  fedbench completion zsh > "${fpath[1]}/_fedbench"
  fedbench completion fish > ~/.config/fish/completions/fedbench.fish"""
NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "method.name": METHODS.names,
    "data.name": sources.names,
    "data.task": lambda: dict.fromkeys((*sources.CHOSEN, *tasks.names())),
    "partition.name": scheme.names,
    "model.name": lambda: ("auto", *MODELS.names()),
    "aggregator.name": rules.names,
    "loggers": lambda: ("wandb", "csv", "tensorboard"),
}
"""The names that keys take."""
FOLDER = ("report", "figure", "table", "watch", "export", "metrics", "wandb")
"""Commands whose first word is the folder of a study."""
LISTS_METHODS = ("methods", "baselines")
"""Flags whose values are names of methods."""
PLACES = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "PATH": shtab.FILE}
UNQUOTED = str.maketrans("", "", "`$\"'\\")
"""Signs of descriptions that shells might read as code."""


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Prints the script. Raises ConfigError for another shell."""
    if len(argv) != 1 or argv[0] not in SHELLS:
        raise ConfigError(f"{' '.join(['completion', *argv])}: {nearest(argv[0] if argv else '', SHELLS)}")
    print(shtab.complete(parser(), argv[0]))
    return OK


def parser() -> ArgumentParser:
    """The commands as argparse knows commands, for completion only."""
    made = ArgumentParser("fedbench", add_help=False)
    inside = made.add_subparsers()
    for name in dict.fromkeys((*COMMANDS, *TABLE.names())):
        try:
            module = _module_of(name)
        except ConfigError:  # of a package that is broken: the command itself says so
            continue
        subparser = inside.add_parser(name, help=line_of(name).translate(UNQUOTED), add_help=False)
        _add_first_word(subparser, name)
        for flag, values in _flags(name, module).items():
            _add(subparser, flag, **values)
    return made


def _module_of(name: str) -> ModuleType:
    """The module of a command, as the name of its function says. Raises ConfigError."""
    return import_module(TABLE.load(name).__module__)


def _add_first_word(subparser: ArgumentParser, command: str) -> None:
    names = {"data": sources.names, "methods": METHODS.names, "completion": lambda: SHELLS}.get(command)
    if names:
        subparser.add_argument("name", nargs="?", choices=[name for name in names() if ":" not in name])
    elif command in FOLDER:
        subparser.add_argument("folder", nargs="?").complete = shtab.DIRECTORY  # type: ignore[attr-defined]


def _add(subparser: ArgumentParser, name: str, help: str, nargs: Any, choices: Iterable[str], complete: Any) -> None:
    known = [choice for choice in choices if ":" not in choice]  # others are forms such as package.module:Class
    how: dict[str, Any] = {"action": "store_true"} if nargs == 0 else {"nargs": nargs, "choices": known or None}
    action = subparser.add_argument(f"--{name}", dest=name, default=SUPPRESS, help=help.translate(UNQUOTED), **how)
    if complete:
        action.complete = complete  # type: ignore[attr-defined]


def _flags(command: str, module: ModuleType) -> dict[str, dict[str, Any]]:
    """The flags of a command by name: those in its FLAGS, and the keys where it reads a configuration."""
    takes_keys = getattr(module, "parse", None) is parse
    given: Iterable[Flag] = (*getattr(module, "FLAGS", ()), *(COMMON if takes_keys else ()))
    flags = {flag.name: _of_flag(flag) for flag in given}
    for key, field in keys_of_command(getattr(module, "TUNING", None)).items() if takes_keys else ():
        if command != "wandb" or key.startswith("wandb."):
            flags.setdefault(flag_of(key), _of_key(key, field))
    return flags


def _of_flag(flag: Flag) -> dict[str, Any]:
    choices = METHODS.names() if flag.name in LISTS_METHODS else flag.choices
    nargs = "*" if flag.many else None if flag.metavar else 0
    return dict(help=flag.description, nargs=nargs, choices=choices, complete=PLACES.get(flag.metavar))


def _of_key(key: str, field: FieldInfo) -> dict[str, Any]:
    choices = NAMES[key]() if key in NAMES else list(_literals(field.annotation))
    nargs = "*" if get_origin(field.annotation) is list else "?" if field.annotation is bool else None
    complete = shtab.FILE if Path in (field.annotation, *get_args(field.annotation)) else None
    return dict(help=field.description or "", nargs=nargs, choices=choices, complete=complete)


def _literals(annotation: Any) -> Iterator[str]:
    """The words among the legal values of a key."""
    if annotation is bool:
        yield from ("true", "false")
    elif get_origin(annotation) is Literal:
        yield from (str(value) for value in get_args(annotation))
    else:
        for part in get_args(annotation):
            yield from _literals(part)
