"""The code of a user's class or function: its name, fingerprint and restrictions.

The code of `package.module:name` is the source of its module and of all modules that this one imports, immediately or
later, if they are in a folder of the user's. Comments, docstrings and layout do not count. Installed packages count by
version; the standard library, fedbench and its own dependencies do not count. Objects that cannot be imported, such as
classes of a notebook or made by a function, are identified by what they do and refer to.
"""

import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from fedbench.errors import ConfigError
from fedbench.import_string import AT, is_held, keep, kept_name, only_here, own_object
from fedbench.user_code.files import Module, hash_of, is_own, on_disk, with_imports
from fedbench.user_code.given_data import GivenData
from fedbench.user_code.module_source import loaded_differences
from fedbench.user_code.objects import Walk


@dataclass(frozen=True)
class Code:
    """files: the hash of each file's content, and the version of each installed package."""

    files: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits."""
        return hash_of(sorted(self.files.items()))


@dataclass(frozen=True)
class _WalkedObject:
    """An object that only this process knows: its fingerprint, and the modules that it refers to."""

    thing: object
    fingerprint: str
    modules: tuple[str, ...]


_noted: dict[str, tuple[ModuleSpec, Module | None]] = {}
"""The content of each module's file when first needed, and the spec that another import replaces."""
_walked: dict[str, _WalkedObject] = {}
_codes: dict[str, tuple[object, dict[str, ModuleSpec | Module], Code]] = {}
"""This process's objects by path, with their modules by specs or, before imports, files, and their code."""


def name_of(thing: Any) -> str:
    """The name under which `import_string` finds a class or function; for a method of fedbench, its file's name.

    Objects that their module does not hold under their own name, such as a class made by a function, get a name that
    differs from everything that does something else: `netfac:make.<locals>.Net@1a2b3c4d`.
    """
    module, name = thing.__module__, thing.__qualname__
    if module.startswith("fedbench.methods."):
        return str(module.rpartition(".")[2].replace("_", "-"))
    path = f"{module}:{name}"
    if not is_held(thing):
        path = kept_name(thing) or f"{path}{AT}{Walk(thing).fingerprint[:8]}"
    if only_here(path):
        keep(path, thing)
    look_again(path)
    return path


def objects_to_send(paths: Iterable[str]) -> dict[str, Any]:
    """The objects at these paths that only this process knows, for sending to another process."""
    return {path: _walk_object(path) for path in paths if only_here(path) and own_object(path) is not None}


def receive_objects(things: Mapping[str, Any]) -> None:
    """Makes objects from another process known here, with the code that they had there."""
    for path, walked in things.items():
        keep(path, walked.thing)
        _walked[path] = walked


def code_of(path: str) -> Code:
    """The code of `package.module:name` in this process.

    A module counts as its file was when first needed, until it is imported again, unless this process has something
    else. Objects that only this process knows are examined once per command.
    """
    loaded = own_object(path)
    known = _codes.get(path)
    if known and known[0] is loaded and all(_is_as_before(name, before) for name, before in known[1].items()):
        return known[2]
    modules = with_imports(_roots(path), _as_loaded)
    files = {file: content for known in modules.values() for file, content in known.files.items()}
    if only_here(path):
        module, _, name = path.partition(":")
        files = {f"{name.partition(AT)[0]} in {module}": _walk_object(path).fingerprint, **files}
    for name, differences in loaded_differences(modules).items():
        files |= {file: hash_of((files[file], sorted(differences.items()))) for file in modules[name].files}
    code = Code(files)
    _codes[path] = (loaded, {name: _spec(name) or module for name, module in modules.items()}, code)
    return code


def look_again(path: str) -> None:
    """Forgets `package.module:name`, whose values may have changed before a new command. Raises ConfigError."""
    _codes.pop(path, None)
    _walked.pop(path, None)
    if isinstance(thing := own_object(path), GivenData):
        thing.look_again()


def outdated_files(path: str) -> list[str]:
    """The files that differ from what this process has of `package.module:name`."""
    modules, now = with_imports(_roots(path), _as_loaded), with_imports(_roots(path), on_disk)
    written = {name for name, module in modules.items() if name not in now or module.files != now[name].files}
    return sorted(file for name in {*written, *loaded_differences(modules)} for file in modules[name].files)


def different_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files that differ, including new and missing ones."""
    return sorted(name for name in {**before, **now} if before.get(name) != now.get(name))


def _roots(path: str) -> list[str]:
    """The modules that define an object, without their imports."""
    module = path.partition(":")[0]
    return [module, *_walk_object(path).modules] if only_here(path) else [module]


def _walk_object(path: str) -> _WalkedObject:
    thing, known = own_object(path), _walked.get(path)
    if isinstance(thing, GivenData):
        return _WalkedObject(thing, path.rpartition(AT)[2], ())
    if known is None or known.thing is not thing:
        walk = Walk(thing)
        known = _walked[path] = _WalkedObject(thing, walk.fingerprint, tuple(walk.modules))
    return known


def _spec(name: str) -> ModuleSpec | None:
    return getattr(sys.modules.get(name), "__spec__", None)


def _is_as_before(name: str, before: ModuleSpec | Module) -> bool:
    spec = _spec(name)
    return spec is before if spec else on_disk(name) == before


def _as_loaded(name: str) -> Module | None:
    """A module as its file was when first needed after its import."""
    spec, known = _spec(name), _noted.get(name)
    if spec is None:
        return on_disk(name)
    if known is None or known[0] is not spec:
        known = _noted[name] = (spec, on_disk(name))
    return known[1]


@contextmanager
def refuse_exits() -> Iterator[None]:
    """A block that runs user code. Raises ConfigError if it tries to exit the process."""
    try:
        yield
    except SystemExit as stop:
        raise ConfigError(exit_text(stop)) from stop


def exit_text(stop: SystemExit) -> str:
    """The line of user code that tried to exit the process."""
    frames = traceback.extract_tb(stop.__traceback__)
    users = [frame for frame in frames if is_own(Path(frame.filename))] or frames
    where = f"{Path(users[-1].filename).name}:{users[-1].lineno} (in {users[-1].name})"
    return f"{where}: sys.exit({stop.code!r}) would end the whole command; return, or raise an exception"
