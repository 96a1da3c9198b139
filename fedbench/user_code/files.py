"""A user's modules and their files: contents and imports.

Nothing is imported or run, and paths do not count, so every machine gets the same result.
"""

import ast
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path
from pkgutil import get_importer
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedbench.errors import PACKAGE
from fedbench.import_string import MAIN
from fedbench.installation import DISTRIBUTION, EXTRAS

LIBRARY = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
INSTALLED = ("site-packages", "dist-packages")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTERS = ("import_module", "__import__")
"""Functions that import a module named by a string."""


@dataclass(frozen=True)
class Module:
    """A module as in its file, or an installed package by its version.

    files: the hash of each file's content, and the version of each installed package. imports: the modules that it may
    import. source: the content of a user module's file.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    source: bytes | None = None
    is_package: bool = False


Look = Callable[[str], Module | None]
"""Finds a module by name; None if it is not a user's module."""


def with_imports(modules: Iterable[str], look: Look) -> dict[str, Module]:
    """These modules and all that they import, by name."""
    whole: dict[str, Module] = {}
    left, seen = list(modules), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        left += [name.rpartition(".")[0]] if "." in name else []  # a package runs before its modules
        if module := look(name):
            whole[name] = module
            left += module.imports
    return whole


def on_disk(name: str) -> Module | None:
    """A module as in its current file."""
    spec = _spec(name)
    if spec is None or not (spec.has_location and spec.origin):
        return None
    origin = Path(spec.origin)
    if _is_library(origin) or not origin.is_file():
        return None
    if _is_installed(origin):
        return Module(_versions(name.partition(".")[0]))
    stat, package = origin.stat(), bool(spec.submodule_search_locations)
    source, content, imports = _read(origin, name, package, stat.st_mtime_ns, stat.st_size)
    file = "/".join([*name.split("."), *["__init__"] * package]) + origin.suffix
    return Module({file: content}, imports, source, package)


def is_own(file: Path) -> bool:
    """Whether a file is the user's, not of the standard library, an installed package or fedbench."""
    return not (_is_library(file) or _is_installed(file) or file.is_relative_to(PACKAGE))


def hash_of(value: Any) -> str:
    """Twelve hexadecimal digits of a value's representation."""
    return sha256(repr(value).encode()).hexdigest()[:12]


def _is_library(file: Path) -> bool:
    """Whether a file belongs to the standard library."""
    return not _is_installed(file) and any(file.is_relative_to(root) for root in LIBRARY)


def _is_installed(file: Path) -> bool:
    return any(part in INSTALLED for part in file.parts)


def _spec(name: str) -> ModuleSpec | None:
    """The spec of a module; None if there is none, or it is not a user's."""
    above, _, _ = name.rpartition(".")
    if name.partition(".")[0] in ("fedbench", MAIN):
        return None
    try:
        if not above:
            return find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    package = _spec(above)
    return _find_inside(list(package.submodule_search_locations or ()), name) if package else None


def _find_inside(folders: list[str], name: str) -> ModuleSpec | None:
    """A module in a package, which need not be imported. folders: where the package searches."""
    nested: list[str] = []
    for folder in folders:
        finder = get_importer(folder)
        spec = finder.find_spec(name) if finder else None
        if spec is not None and spec.loader is not None:
            return spec
        nested += spec.submodule_search_locations or [] if spec else []
    space = ModuleSpec(name, None, is_package=True)  # a package without a file of its own
    space.submodule_search_locations = nested
    return space if nested else None


@cache
def _read(path: Path, module: str, is_package: bool, modified: int, size: int) -> tuple[bytes, str, tuple[str, ...]]:
    """A file's content, its hash, and the modules that it may import."""
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
        imports = tuple(dict.fromkeys(_imports(tree, import_anchor(module, is_package))))
        return source, hash_of(_without_positions(tree)), imports
    except (SyntaxError, ValueError, RecursionError):  # compiled, never imported, or nested too deeply
        return source, hash_of(source), ()


def _without_positions(node: Any) -> Any:
    """A syntax tree without positions, docstrings, and fields that only some versions of Python have."""
    if isinstance(node, list):
        return [_without_positions(value) for value in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    return type(node).__name__, [
        (key, _without_positions(value)) for key, value in fields.items() if value not in (None, [])
    ]


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Names of modules, including those that may be names in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = imported_from(node, package)
            yield from filter(None, [base, *(f"{base}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in IMPORTERS:
            yield from _named_in(node, package)


def _named_in(call: ast.Call, package: str) -> Iterator[str]:
    """The module named by `import_module("pk.part")` or `import_module(".part", "pk")`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    words = [node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if words:
        yield from filter(None, [_absolute(words[0], (words[1:] or [package])[0])])


def import_anchor(module: str, is_package: bool) -> str:
    """The package to which a module's relative imports refer."""
    return module if is_package else module.rpartition(".")[0]


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """The module of `from .part import x`."""
    return _absolute("." * node.level + (node.module or ""), package)


def _absolute(name: str, package: str) -> str:
    """A module's name without leading dots, which refer to packages."""
    try:
        return resolve_name(name, package)
    except ImportError:  # there are not so many packages
        return name.lstrip(".")


def _versions(package: str) -> dict[str, str]:
    """The versions of an installed package, usually one; none for fedbench's own dependencies."""
    if canonicalize_name(package) in _own_needs():
        return {}
    names = _distributions().get(package, [])
    return {name: metadata.version(name) for name in names if canonicalize_name(name) not in _own_needs()}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _own_needs() -> frozenset[str]:
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        needs = []
    kinds = tuple(f'extra == "{name}"' for name in EXTRAS)
    requirements = [need for need in needs if "extra ==" not in need or need.endswith(kinds)]
    return frozenset(canonicalize_name(Requirement(need).name) for need in requirements)
