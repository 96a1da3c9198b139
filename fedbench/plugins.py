"""Looks names up: fedbench's own files, entry points of installed packages, and package.module:name."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError, nearest
from fedbench.import_string import import_string, imported_module

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class PluginTable:
    """The named things of one kind. A package cannot replace fedbench's own names.

    what: the kind, for error messages. group: the group of entry points. built_in: the places of fedbench's own things,
    as `package.module:name`, or as `package.module` from which `extract` takes the thing. extra_names: further valid
    names, which `load` does not know. form: how users write a thing without a name. check: raises ConfigError if a
    thing that is not fedbench's own is not of this kind. elsewhere: names that one may expect here, and in words what
    to use instead.
    """

    what: str
    group: str
    built_in: Mapping[str, str]
    extract: Callable[[ModuleType], Any] = field(default=lambda module: module)
    extra_names: tuple[str, ...] = ()
    form: str = ""
    check: Callable[[str, Any], None] = lambda name, thing: None
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """All valid names. Imports none of the things."""
        return sorted({*self.built_in, *self.extra_names, *entry_points_of(self.group)})

    def load(self, name: str) -> Any:
        """The thing with a name, or at package.module:name. Raises ConfigError."""
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            source = import_module(module)
            return getattr(source, attribute) if attribute else self.extract(source)
        points = entry_points_of(self.group).get(name, [])
        if not points and ":" not in name:
            raise self._unknown_name_error(name)
        if len(points) > 1:
            several = " and ".join(f"{point.value} of {package_of(point)}" for point in points)
            raise ConfigError(f"{self.what} '{name}' is {several}: choose one as package.module:name")
        added = f"{self.what} '{name}' of the installed package {package_of(points[0])}:" if points else self.what
        path = self.path(name)
        thing = import_string(path, added) if ":" in path else imported_module(path, added)
        self.check(name, thing)
        return thing

    def check_known(self, name: str) -> None:
        """Raises ConfigError for a name that nothing has. Imports nothing."""
        if ":" not in name and name not in self.names():
            raise self._unknown_name_error(name)

    def _unknown_name_error(self, name: str) -> ConfigError:
        if name in self.elsewhere:
            return ConfigError(f"{name} is no {self.what}: {self.elsewhere[name]}")
        form = f" (your own: {self.form})" if self.form else ""
        return ConfigError(f"unknown {self.what} '{name}': {nearest(name, self.names())}{form}")

    def path(self, name: str) -> str:
        """The package.module:name of a thing that is not fedbench's own; empty for fedbench's own and unknown names."""
        if name in self.built_in:
            return ""
        points = entry_points_of(self.group).get(name, [])
        return points[0].value if points else name if ":" in name else ""

    def loadable(self) -> Iterator[tuple[str, Any]]:
        """All things by name, except those of packages that cannot be imported or are not of this kind."""
        for name in self.names():
            with suppress(ConfigError):
                yield name, self.load(name)

    def faults(self) -> Iterator[str]:
        """One line for each name of a package that cannot be loaded."""
        for name in entry_points_of(self.group):
            try:
                self.load(name)
            except ConfigError as error:
                yield str(error)


def modules(package: str, folder: Iterable[str], skip: Collection[str] = ()) -> dict[str, str]:
    """The modules of a package by name: `my_thing.py` is `my-thing`."""
    names = (module.name for module in iter_modules(folder) if not module.ispkg and module.name not in skip)
    return {name.replace("_", "-"): f"{package}.{name}" for name in names}


def only_class(module: ModuleType, base: type) -> Any:
    """The only subclass of a class that a module defines."""
    values = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    (only,) = [value for value in values if isinstance(value, type) and issubclass(value, base)]
    return only


@cache
def entry_points_of(group: str) -> dict[str, list["EntryPoint"]]:
    """The entry points of a group by name; more than one if several packages use the name."""
    points: dict[str, list[EntryPoint]] = {}
    for point in _entry_points().select(group=group):
        points.setdefault(point.name, []).append(point)
    return points


@cache
def _entry_points() -> Any:
    """The entry points of all packages, read once because that takes about twenty milliseconds."""
    from importlib.metadata import entry_points

    return entry_points()


def plugged_packages() -> list[str]:
    """The top-level packages, by their import names, of all entry points in groups of fedbench's."""
    groups = [group for group in _entry_points().groups if group.startswith(f"{__name__.partition('.')[0]}.")]
    points = [point for group in groups for several in entry_points_of(group).values() for point in several]
    return sorted({point.module.partition(".")[0] for point in points})


def package_of(point: "EntryPoint") -> str:
    """The name, as pip knows it, of the package that an entry point comes from."""
    return point.dist.name if point.dist else point.value.partition(".")[0]


PAGES = PluginTable("page", group="fedbench.pages", built_in={})
"""Functions that write the page of a study, by the name of the file that such a study has in its folder."""
