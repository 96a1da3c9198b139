"""What is found by a name: files of fedbench's own, entry points of installed packages, and package.module:name."""

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
class Table:
    """Things of one kind by name. A name of fedbench's own beats that of an entry point.

    what: the kind in words. group: of entry points. own: where fedbench's own are, as `package.module:name`, or as
    `package.module` of which `held` takes the thing. also: names that stand for no thing. form: how one writes what is
    in no table. check: raises ConfigError for a name whose thing, of other people's, is none of the kind.
    """

    what: str
    group: str
    own: Mapping[str, str]
    held: Callable[[ModuleType], Any] = field(default=lambda module: module)
    also: tuple[str, ...] = ()
    form: str = ""
    check: Callable[[str, Any], None] = lambda name, thing: None

    def names(self) -> list[str]:
        """What a name may be, without importing anything of it."""
        return sorted({*self.own, *self.also, *installed(self.group)})

    def load(self, name: str) -> Any:
        """The thing of a name, or of package.module:name. Raises ConfigError."""
        if name in self.own:
            module, _, attribute = self.own[name].partition(":")
            found = import_module(module)
            return getattr(found, attribute) if attribute else self.held(found)
        points = installed(self.group).get(name, [])
        if not points and ":" not in name:
            form = f" (your own: {self.form})" if self.form else ""
            raise ConfigError(f"unknown {self.what} '{name}': {nearest(name, self.names())}{form}")
        if len(points) > 1:
            several = " and ".join(f"{point.value} of {package_of(point)}" for point in points)
            raise ConfigError(f"{self.what} '{name}' is {several}: write which, as package.module:name")
        added = f"{self.what} '{name}' of the installed package {package_of(points[0])}:" if points else self.what
        path = self.path(name)
        thing = import_string(path, added) if ":" in path else imported_module(path, added)
        self.check(name, thing)
        return thing

    def path(self, name: str) -> str:
        """The package.module:name of what is not fedbench's own; empty for fedbench's, and for unknown names."""
        if name in self.own:
            return ""
        points = installed(self.group).get(name, [])
        return points[0].value if points else name if ":" in name else ""

    def working(self) -> Iterator[tuple[str, Any]]:
        """All names with their things, without those that packages bring and that cannot be used."""
        for name in self.names():
            with suppress(ConfigError):
                yield name, self.load(name)

    def faults(self) -> Iterator[str]:
        """Why names of packages cannot be used, a line each."""
        for name in installed(self.group):
            try:
                self.load(name)
            except ConfigError as error:
                yield str(error)


def modules(package: str, folder: Iterable[str], skip: Collection[str] = ()) -> dict[str, str]:
    """The files of a package as a table's own: `my_thing.py` is `my-thing`."""
    found = (module.name for module in iter_modules(folder) if not module.ispkg and module.name not in skip)
    return {name.replace("_", "-"): f"{package}.{name}" for name in found}


def only_class(module: ModuleType, base: type) -> Any:
    """The one class below another that a module defines."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    (found,) = [value for value in own if isinstance(value, type) and issubclass(value, base)]
    return found


@cache
def installed(group: str) -> dict[str, list["EntryPoint"]]:
    """The entry points of a group by name; several of a name where packages do not agree."""
    found: dict[str, list[EntryPoint]] = {}
    for point in _entry_points().select(group=group):
        found.setdefault(point.name, []).append(point)
    return found


@cache
def _entry_points() -> Any:
    """Those of all packages, read once: it takes some twenty milliseconds."""
    from importlib.metadata import entry_points

    return entry_points()


def package_of(point: "EntryPoint") -> str:
    """What pip calls the package that adds something."""
    return point.dist.name if point.dist else point.value.partition(".")[0]


PAGES = Table("page", group="fedbench.pages", own={})
"""Functions that write the page of a study, by the name of the file that such a study has in its folder."""
