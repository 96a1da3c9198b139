"""Checks whether user modules in this process agree with their files.

A file changed after its import, or a value set from outside (`mymod.LR = 0.5`), would otherwise give a run the identity
of other code than it used. Compared are functions, methods and their defaults, values that a file assigns once as a
literal, names imported from other user modules, and base classes. Values that modules change while running, by
`global`, `settings.LR = ` or `CACHE[key] = `, may differ.
"""

import ast
import sys
from abc import ABCMeta
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial, partialmethod
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any

from fedbench.import_string import attribute
from fedbench.user_code.files import Module, import_anchor, imported_from
from fedbench.user_code.objects import Walk, codes_in, constants, said_by

Function = ast.FunctionDef | ast.AsyncFunctionDef
LITERALS = (int, float, complex, str, bytes, bool, type(None), tuple, list, dict, set)
DYNAMIC, ANYTHING = ("globals", "vars", "locals", "exec"), "*"
"""Functions that may create any name, and their marker, also for `from part import *`."""
MISSING = object()


@dataclass(frozen=True)
class Difference:
    """module: the one to import again. name: what differs in it. source: the module whose file defines it."""

    module: str
    name: str
    source: str
    loaded: str
    """Names what this process has."""


def code_differences(modules: Mapping[str, Module]) -> list[Difference]:
    """Differences between the files of these modules and this process."""
    texts = {name: text for name, module in modules.items() if _is_loaded(name) and (text := _text(name, module))}
    rebound = frozenset[str]().union(*(text.rebound for text in texts.values()))
    mutated = frozenset[str]().union(*(text.mutated for text in texts.values()))
    return [found for name in texts for found in _Comparison(name, texts, rebound, mutated).differences()]


def _is_loaded(name: str) -> bool:
    """Whether a module was imported completely by Python itself; other loaders may compile its file differently."""
    module = sys.modules.get(name)
    spec: Any = getattr(module, "__spec__", None)
    is_plain = type(module) is ModuleType and spec is not None and spec.name == name
    return is_plain and type(spec.loader) is SourceFileLoader and not getattr(spec, "_initializing", False)


@dataclass(frozen=True)
class _Text:
    """The content of a file.

    codes: prints of its functions by their qualified names, which need not be unique. rebound: names that code sets
    elsewhere than at their first assignment. mutated: names of lists, dicts and the like that code writes to.
    """

    body: list[ast.stmt]
    package: str
    codes: Mapping[str, frozenset[str]]
    rebound: frozenset[str]
    mutated: frozenset[str]


def _text(name: str, module: Module) -> _Text | None:
    return _read(module.source, import_anchor(name, module.is_package)) if module.source else None


@cache
def _read(source: bytes, package: str) -> _Text | None:
    """Parses a file; None unless it is source code."""
    try:
        tree = ast.parse(source)
        code = compile(source, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    codes: dict[str, set[str]] = {}
    for one in codes_in(code):
        codes.setdefault(one.co_qualname, set()).add(_code_fingerprint(one))
    every = {name: frozenset(prints) for name, prints in codes.items()}
    return _Text(tree.body, package, every, frozenset(_rebound_names(tree)), frozenset(_mutated_names(tree)))


def _rebound_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _name_of(node.value) != "self":
            yield node.attr
        elif isinstance(node, ast.Call) and _name_of(node.func) == "setattr" and len(node.args) == 3:
            owner, name, _ = node.args
            if _name_of(owner) != "self":
                yield str(name.value) if isinstance(name, ast.Constant) else ANYTHING


def _mutated_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript):
            writes = isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load)
            yield from [_name_of(node.value)] if writes else []


def _name_of(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _code_fingerprint(code: CodeType) -> str:
    """A function's code, with nested functions."""
    return Walk([(said_by(one), constants(one)) for one in codes_in(code)]).fingerprint


class _Comparison:
    """Compares one module. texts: the contents of it and the other user modules, by name."""

    def __init__(self, name: str, texts: Mapping[str, _Text], rebound: frozenset[str], mutated: frozenset[str]) -> None:
        self.name, self.texts, self.text = name, texts, texts[name]
        self.rebound, self.mutated = rebound, mutated
        self.file = sys.modules[name].__spec__.origin  # type: ignore[union-attr]

    def differences(self) -> Iterator[Difference]:
        yield from self._scope(vars(sys.modules[self.name]), self.text.body)

    def _scope(self, held: Mapping[str, Any], body: list[ast.stmt], kind: type | None = None) -> Iterator[Difference]:
        """Compares a module or a class. Ignores missing names, because code that uses them differs too."""
        given = Counter(_assigned_names(body))
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = _mangle(node.name, kind)
                if name in held or kind:
                    path = f"{kind.__qualname__}.{node.name}" if kind else node.name
                    yield from self._function(
                        node, path, held.get(name, MISSING), self._is_plain(node.name, given, kind)
                    )
            elif isinstance(node, ast.ClassDef):
                if node.name in held and self._is_plain(node.name, given, kind):
                    yield from self._class(node, held[node.name])
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                name = _name_of(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
                own = held.get(_mangle(name, kind), MISSING)
                if self._is_plain(name, given, kind) and own is not MISSING and (not kind or type(own) in LITERALS):
                    yield from self._value(name, node.value, own)
            elif isinstance(node, ast.ImportFrom) and not kind:
                for alias in node.names:
                    own = held.get(alias.asname or alias.name, MISSING)
                    if own is not MISSING and self._is_plain(alias.asname or alias.name, given):
                        yield from self._compare_import(imported_from(node, self.text.package), alias.name, own)

    def _is_plain(self, name: str, given: Counter[str], kind: type | None = None) -> bool:
        """Whether a name holds exactly what is written and cannot have been changed elsewhere."""
        is_alone = given[name] == 1 and name not in self.rebound
        is_sure = not given[ANYTHING] and ANYTHING not in self.text.rebound
        return is_alone and is_sure and type(kind) in (NoneType, type, ABCMeta)

    def _value(self, name: str, node: ast.expr | None, held: Any) -> Iterator[Difference]:
        literal = _literal(node)
        changes = isinstance(literal, list | dict | set) and (not literal or name in self.mutated)
        if literal is not MISSING and not changes and not _is_same(held, literal):
            yield self._difference(name, held)

    def _function(self, node: Function, path: str, held: Any, is_plain: bool) -> Iterator[Difference]:
        functions = list(_functions(held))
        own = [f for f in functions if f.__code__.co_filename == self.file and f.__code__.co_qualname == path]
        is_lost = not own and not node.decorator_list
        is_other = is_lost or not all(_has_defaults(function, node) for function in own)
        if any(map(self._is_foreign, functions)) or (is_plain and is_other):
            yield self._difference(node.name, held)

    def _is_foreign(self, function: FunctionType) -> bool:
        """Whether a function comes from the file but differs from its content."""
        code = function.__code__
        return code.co_filename == self.file and _code_fingerprint(code) not in self.text.codes.get(
            code.co_qualname, ()
        )

    def _class(self, node: ast.ClassDef, held: Any) -> Iterator[Difference]:
        if not isinstance(held, type):
            yield from [] if node.decorator_list else [self._difference(node.name, held)]
            return
        yield from self._scope(vars(held), node.body, held)
        written = {_mangle(name, held) for name in _assigned_names(node.body)}
        for name, value in vars(held).items():
            if name not in written and any(map(self._is_foreign, _functions(value))):
                yield self._difference(name, value)  # the file no longer has it
        for base in held.__bases__:
            if base.__module__ != self.name:
                yield from self._compare_import(base.__module__, base.__qualname__, base)

    def _compare_import(self, source: str, name: str, held: Any) -> Iterator[Difference]:
        """Compares a name imported from a module that was imported again, while this one still has the old object."""
        if source not in self.texts:
            return
        now = attribute(sys.modules[source], name)
        is_plain = self._is_plain(name.partition(".")[0], Counter(_assigned_names(self.texts[source].body)))
        if is_plain and now is not None and now is not held and not _is_same(now, held):
            yield self._difference(name, held, source)

    def _difference(self, name: str, held: Any, source: str | None = None) -> Difference:
        return Difference(self.name, name, source or self.name, Walk(held, whole=True).fingerprint)


def _assigned_names(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a scope assigns, once per assignment."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Name) and node.id in DYNAMIC:
            yield ANYTHING
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        left += ast.iter_child_nodes(node)


def _mangle(name: str, kind: type | None) -> str:
    """The mangled name in a class of a name with two leading underscores."""
    is_private = kind and name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if kind and is_private else name


def _literal(node: ast.expr | None) -> Any:
    try:
        return MISSING if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return MISSING


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions in a value, as far as decorators expose them."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, FunctionType):
            yield one
        elif isinstance(one, property):
            left += [one.fget, one.fset, one.fdel]
        elif isinstance(one, cached_property | partial | partialmethod):
            left.append(one.func)
        elif isinstance(one, staticmethod | classmethod):
            left.append(one.__func__)
            continue  # its __wrapped__ is the same function
        left += filter(None, [getattr(one, "__dict__", {}).get("__wrapped__")])


def _has_defaults(function: FunctionType, node: Function) -> bool:
    """Whether a function's defaults are those written, if they are plain values."""
    by_name = {arg.arg: value for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value}
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    said = [*node.args.defaults, *by_name.values()]
    literals = [_literal(value) for value in said]
    return len(held) == len(said) and all(
        literal is MISSING or isinstance(literal, list | dict | set) or _is_same(own, literal)
        for own, literal in zip(held, literals, strict=True)
    )


def _is_same(one: Any, other: Any) -> bool:
    return Walk(one, whole=True).fingerprint == Walk(other, whole=True).fingerprint
