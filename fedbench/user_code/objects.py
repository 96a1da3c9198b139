"""What this process has in memory: hashes of objects that no file defines completely, such as a notebook's class."""

import dis
import sys
from collections.abc import Iterable, Iterator, Mapping
from copyreg import dispatch_table
from functools import cached_property
from hashlib import sha256
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, WeakValueDictionary

from fedbench.import_string import MAIN, is_held
from fedbench.user_code.files import IMPORTERS, hash_of, is_own

LITERAL_TYPES = (int, float, complex, str, bool, type(None), type(Ellipsis))
WEAK = (ReferenceType, WeakKeyDictionary, WeakSet, WeakValueDictionary)
"""Types whose contents belong to other objects."""
DEFAULTS = "__pydantic_fields__"
"""The attribute of an options class that stores its defaults."""


class Walk:
    """Visits an object and all that it refers to.

    Classes and functions that a module holds under their names are identified by that module; those of a notebook or
    script, or made by a function, by their code and what it refers to; other objects by type and state. Objects that
    cannot be read, such as locks, count by type. modules: all modules involved.
    """

    def __init__(self, value: Any, met: Mapping[int, int] | None = None) -> None:
        self.modules: list[str] = []
        self._seen: list[Any] = []
        self._met = dict(met or {})  # the order in which objects were met, by id
        self._keep: list[Any] = []  # keeps objects alive, so that their ids are not reused
        left = [value]
        while left:
            parts = list(self._visit(left.pop()))
            self._seen.append(len(parts))
            left += reversed(parts)

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits, the same in every process."""
        return hash_of(self._seen)

    def _visit(self, value: Any) -> Iterable[Any]:
        """Records a value by itself and returns its parts."""
        kind = type(value)
        if kind in LITERAL_TYPES:
            self._seen.append(repr(value))
        elif kind is bytes:
            self._seen.append(sha256(value).hexdigest())
        elif kind is tuple:  # whether two equal tuples are the same object is up to Python
            self._seen.append("tuple")
            return value
        elif id(value) in self._met:
            self._seen.append(("again", self._met[id(value)]))
        else:
            self._met[id(value)] = len(self._met)
            self._keep.append(value)
            return self._enter(value)
        return ()

    def _enter(self, value: Any) -> Iterable[Any]:
        kind = type(value)
        self._seen.append(kind.__name__)
        if kind is list:
            return list(value)
        if kind in (dict, MappingProxyType):
            return [part for pair in value.items() for part in pair]
        if kind in (set, frozenset):
            return self._sorted_fingerprints(value)
        if isinstance(value, ModuleType):
            return self._module(value.__name__)
        if isinstance(value, type):
            return self._class(value)
        if kind is FunctionType:
            return self._function(value.__wrapped__ if hasattr(value, "hooked") else value)  # by PyTorch, at first use
        if kind is BuiltinFunctionType:
            return self._builtin(value)
        if kind is MethodType:
            return value.__self__, value.__func__
        if isinstance(value, staticmethod | classmethod):
            return (value.__func__,)
        if isinstance(value, property):
            return value.fget, value.fset, value.fdel
        if isinstance(value, cached_property):
            return (value.func,)
        return () if isinstance(value, WEAK) else self._instance(value)

    def _sorted_fingerprints(self, values: Iterable[Any]) -> Iterable[Any]:
        walks = [Walk(value, self._met) for value in values]
        self.modules += [name for walk in walks for name in walk.modules]
        return sorted(walk.fingerprint for walk in walks)

    def _module(self, name: str) -> Iterable[Any]:
        self._seen.append(name)
        self.modules.append(name)
        return ()

    def _class(self, kind: type) -> Iterator[Any]:
        module = str(kind.__module__)
        if module != MAIN and (is_held(kind) or not _is_own(module)):
            self._seen.append(kind.__qualname__)
            yield from self._module(module)
            return
        self._seen.append(kind.__name__)  # in another process the qualified name of a local class differs
        yield from (type(kind), kind.__bases__)
        for name, value in sorted(vars(kind).items(), key=lambda item: item[0]):
            does = callable(value) or isinstance(value, classmethod | property)
            if does or not name.startswith("__") or name == DEFAULTS:
                yield from (name, value)

    def _function(self, function: FunctionType) -> Iterator[Any]:
        home = str(function.__globals__.get("__name__", MAIN))
        self._seen.append(function.__name__)
        if home != MAIN:
            yield from self._module(home)
            if is_held(function):
                self._seen.append(function.__qualname__)
                return
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from (function.__defaults__, function.__kwdefaults__, vars(function))
        yield from (part for name, cell in cells for part in (name, _content(cell)))
        for code in codes_in(function.__code__) if home == MAIN or _is_own(home) else ():
            self._seen.append(code_signature(code))
            yield from constants(code)
            yield from self._named_objects(code, function.__globals__)

    def _named_objects(self, code: CodeType, known: Mapping[str, Any]) -> Iterator[Any]:
        """The objects behind a function's non-local names."""
        package = ""
        for step in dis.get_instructions(code):
            name = str(step.argval)
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in known:
                yield from (name, known[name])
            elif step.opname == "IMPORT_NAME":
                package = name
                self.modules.append(name)
            elif step.opname == "IMPORT_FROM":
                self.modules.append(f"{package}.{name}")
        if not {*IMPORTERS}.isdisjoint(code.co_names):
            self.modules += [text for text in code.co_consts if isinstance(text, str)]

    def _builtin(self, function: Any) -> Iterator[Any]:
        self._seen.append(function.__qualname__)
        if isinstance(function.__self__, ModuleType | type | None):
            yield from self._module(str(function.__module__))
        else:
            yield function.__self__

    def _instance(self, value: Any) -> Iterator[Any]:
        """An instance by its type and the arguments that would recreate it."""
        yield type(value)
        try:
            if (array := _tensor(value) or _mapped_file(value)) is not None:
                yield from array
                return
            reduce = dispatch_table.get(type(value), lambda value: value.__reduce_ex__(4))
            made: Any = reduce(value)
        except Exception:  # a lock, an open file
            yield getattr(value, "__dict__", None)
            return
        if isinstance(made, str):
            yield from (made, getattr(value, "__wrapped__", None))  # of functools.cache
            return
        yield from (list(part) if isinstance(part, Iterator) else part for part in made)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of nested functions."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from codes_in(value)


def code_signature(code: CodeType) -> tuple[Any, ...]:
    """A code object without its constants."""
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, counts


def constants(code: CodeType) -> list[Any]:
    """The constants of a code object, without its docstring and nested functions."""
    values = [*code.co_consts]
    documented = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
    if documented and values and isinstance(values[0], str):
        values[0] = None
    return [value for value in values if not isinstance(value, CodeType)]


def _is_own(module: str) -> bool:
    """Whether a module is the user's; a module that nobody imported was made by user code."""
    if module not in sys.modules:
        return True
    file = getattr(sys.modules[module], "__file__", None)
    return file is not None and is_own(Path(file))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _tensor(value: Any) -> tuple[Any, ...] | None:
    """Type, shape and bytes of a tensor; its own reduction names its storage, which differs between processes."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    known = str(value.dtype), tuple(value.shape), value.requires_grad
    if value.is_meta:
        return known
    from fedbench.user_code.memory import bytes_of  # imports PyTorch

    return *known, bytes_of(value).tobytes()


def _mapped_file(value: Any) -> tuple[Any, ...] | None:
    """The file of a memory-mapped array, by size and time, and the array's place in it: reading it may take long."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.memmap) or not value.filename:
        return None
    file = Path(str(value.filename)).stat()
    return file.st_size, file.st_mtime_ns, value.offset, value.shape, value.dtype.str
