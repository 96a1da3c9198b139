"""The code of a user's class or function: a fingerprint that changes with what it does, and what it may not do.

The code of `package.module:name` is the source of its module and of every module that this one imports, whether at once
or later, as long as it lies in a folder of the user's. Comments, docstrings and layout do not count. Of an installed
package its version counts; of the standard library, of fedbench and of what fedbench itself stands on nothing does.
Nothing is imported or run to find out, and paths do not count, so that every machine comes to the same.
"""

import ast
import inspect
import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_importer
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedbench.errors import ConfigError
from fedbench.import_string import MAIN, own_object

PLAIN = (int, float, complex, str, bytes, bool, type(None))
LIBRARY = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Code:
    """files: by the name of a file its content as a hash, by the name of an installed package its version."""

    files: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits."""
        return _hashed(sorted(self.files.items()))


def fingerprint(path: str) -> str:
    """The code of `package.module:name` in twelve hexadecimal digits."""
    return code_of(path).fingerprint


def code_of(path: str) -> Code:
    """The code of `package.module:name` as this process has it: as it was when it was asked for first.

    A module stays as it was imported whatever becomes of its file; one that was imported again is read again.
    """
    loaded = own_object(path)
    if loaded is None:
        return code_now(path)
    known = _known.get(path)
    if known is None or known[0] is not loaded:
        known = _known[path] = (loaded, code_now(path))
    return known[1]


_known: dict[str, tuple[Any, Code]] = {}
"""By path the object that this process has, and its code."""


def code_now(path: str) -> Code:
    """The code of `package.module:name` as its files are."""
    module, _, name = path.partition(":")
    if module != MAIN:
        return Code(_files([module]))
    walk = _Walk()
    walk.visit(own_object(path))
    return Code({f"{name} in {MAIN}": _hashed(walk.seen), **_files(walk.modules)})


@contextmanager
def exits_refused() -> Iterator[None]:
    """A block that runs code of the user's, which may not end the process. Raises ConfigError where it tries to."""
    try:
        yield
    except SystemExit as stop:
        raise ConfigError(told_exit(stop)) from stop


def told_exit(stop: SystemExit) -> str:
    """Which line of the user's would have ended the process."""
    frames = traceback.extract_tb(stop.__traceback__)
    own = [frame for frame in frames if _is_own(Path(frame.filename))] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno} (in {own[-1].name})"
    return f"{where}: sys.exit({stop.code!r}) would end the whole command; return, or raise an exception"


def _is_own(file: Path) -> bool:
    return not (_is_library(file) or _is_installed(file) or file.is_relative_to(Path(__file__).parent))


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files that differ, new and lost ones included."""
    return sorted(name for name in {**before, **now} if before.get(name) != now.get(name))


def _hashed(value: Any) -> str:
    return sha256(repr(value).encode()).hexdigest()[:12]


def _files(modules: list[str]) -> dict[str, str]:
    """Of modules and of all that they import."""
    found: dict[str, str] = {}
    left, seen = list(modules), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        left += [name.rpartition(".")[0]] if "." in name else []  # a package is run before what is in it
        spec = _spec(name)
        if spec is None or not (spec.has_location and spec.origin):
            continue
        origin = Path(spec.origin)
        if _is_library(origin) or not origin.is_file():
            continue
        if _is_installed(origin):
            found |= _versions(name.partition(".")[0])
            continue
        stat, package = origin.stat(), bool(spec.submodule_search_locations)
        content, imports = _read(origin, name, package, stat.st_mtime_ns, stat.st_size)
        found["/".join([*name.split("."), *["__init__"] * package]) + origin.suffix] = content
        left += imports
    return found


def _is_library(file: Path) -> bool:
    """Whether a file is the standard library's."""
    return not _is_installed(file) and any(file.is_relative_to(root) for root in LIBRARY)


def _is_installed(file: Path) -> bool:
    return any(part in INSTALLED for part in file.parts)


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is; none where there is no such module, or where it is no matter of the user's."""
    above, _, _ = name.rpartition(".")
    if name.partition(".")[0] in ("fedbench", MAIN):
        return None
    try:
        if not above:
            return find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    package = _spec(above)
    return _inside(list(package.submodule_search_locations or ()), name) if package else None


def _inside(folders: list[str], name: str) -> ModuleSpec | None:
    """A module in a package, which need not be imported. folders: where the package looks."""
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
def _read(path: Path, module: str, is_package: bool, modified: int, size: int) -> tuple[str, tuple[str, ...]]:
    """What a file says, as a hash, and which modules it may import."""
    content = path.read_bytes()
    package = module if is_package else module.rpartition(".")[0]
    try:
        tree = ast.parse(content)
        return _hashed(_said(tree)), tuple(dict.fromkeys(_imports(tree, package)))
    except (SyntaxError, ValueError, RecursionError):  # compiled, or never imported, or nested too deeply
        return _hashed(content), ()


def _said(node: Any) -> Any:
    """A syntax tree without positions and docstrings, and without fields that only some versions of Python have."""
    if isinstance(node, list):
        return [_said(value) for value in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _docstring(node.body):
        fields["body"] = node.body[1:]
    return type(node).__name__, [(key, _said(value)) for key, value in fields.items() if value not in (None, [])]


def _docstring(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Names of modules, those included that may be names in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from filter(None, [base, *(f"{base}.{alias.name}" for alias in node.names)])


def _versions(package: str) -> dict[str, str]:
    """The versions of an installed package, as a rule one; none where fedbench itself stands on it."""
    if _plain(package) in _own_needs():
        return {}
    names = _distributions().get(package, [])
    return {name: metadata.version(name) for name in names if _plain(name) not in _own_needs()}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _own_needs() -> frozenset[str]:
    try:
        needs = metadata.requires("fedbench") or []
    except metadata.PackageNotFoundError:
        needs = []
    names = [re.match(r"[\w.-]+", need) for need in needs if "extra ==" not in need]
    return frozenset(_plain(name.group()) for name in names if name)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Walk:
    """Through an object of a notebook or script, which is known by its functions, and all that they refer to."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.modules: list[str] = []
        self._met: set[int] = set()
        self._keep: list[Any] = []  # or another object might get the number of one that is gone

    def visit(self, value: Any) -> None:
        if isinstance(value, PLAIN):
            self.seen.append(repr(value))
        elif isinstance(value, set | frozenset):
            self.seen.append(sorted(map(repr, value)))
        elif id(value) not in self._met:
            self._met.add(id(value))
            self._keep.append(value)
            self._enter(value)

    def _enter(self, value: Any) -> None:
        value = getattr(value, "__func__", value)  # of a method
        if isinstance(value, dict | tuple | list):
            self.seen.append(type(value).__name__)
            for item in value.items() if isinstance(value, dict) else value:
                self.visit(item)
        elif isinstance(value, ModuleType):
            self.modules.append(value.__name__)
        elif getattr(value, "__module__", None) not in (MAIN, None):
            self.modules.append(str(value.__module__))
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, property):
            self.visit([value.fget, value.fset])
        else:
            self.seen.append(type(value).__qualname__)

    def _class(self, kind: type) -> None:
        self.seen.append(kind.__name__)  # in another process the qualified name of a local class is another one
        self.visit(kind.__bases__)
        for name, value in sorted(vars(kind).items()):
            if not name.startswith("__") or callable(value):
                self.seen.append(name)
                self.visit(value)

    def _function(self, function: FunctionType) -> None:
        self.visit([function.__defaults__, function.__kwdefaults__, inspect.getclosurevars(function).nonlocals])
        self._code(function.__code__, function.__globals__, function.__doc__)

    def _code(self, code: CodeType, names: Mapping[str, Any], doc: str | None = None) -> None:
        self.seen.append((code.co_code, code.co_names, code.co_varnames))
        for value in code.co_consts:
            if isinstance(value, CodeType):
                self._code(value, names)
            elif value != doc:
                self.visit(value)
        for name in code.co_names:
            if name in names:
                self.visit(names[name])
