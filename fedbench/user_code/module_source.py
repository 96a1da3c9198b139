"""Where loaded modules differ from their source: edited since, or given other values from outside."""

import ast
import dis
import sys
from abc import ABCMeta
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial, partialmethod
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from fedbench.import_string import attribute
from fedbench.user_code.files import Module
from fedbench.user_code.objects import LITERAL_TYPES, Walk, code_signature, codes_in, constants

CONSTANTS = {*LITERAL_TYPES, bytes, tuple}
WRAPPERS = (staticmethod, classmethod, property, cached_property, partial, partialmethod)
DYNAMIC = {"setattr", "globals", "vars", "locals", "exec"}
"""Functions that may give a value to any name."""
SETTERS = {"__defaults__", "__kwdefaults__"}
"""Attributes by which a module may set the defaults of functions itself."""
FUNCTION, IMPORT, COMPUTED = object(), object(), object()


class ModuleSource(NamedTuple):
    """What the source of a module says.

    names: of the module. functions: fingerprints by qualified name. defaults: of the arguments of functions, likewise,
    each a constant or COMPUTED. values: what the module or a class, by its name, gives to a name once: a constant,
    FUNCTION without decorators, or IMPORT. written: names that functions set.
    """

    names: set[str]
    functions: dict[str, set[str]]
    defaults: dict[str, list[list[Any]]]
    values: dict[tuple[str, str], Any]
    written: set[str]


def loaded_differences(modules: Mapping[str, Module]) -> dict[str, dict[str, str]]:
    """The names of loaded modules that differ from the source, with fingerprints.

    Compared are functions with their defaults, and constants that no function sets; not lists, and what is computed.
    """
    sources = {name: own for name, module in modules.items() if _is_loaded(name) and (own := _parse(module.source))}
    files = {sys.modules[name].__file__: source for name, source in sources.items()}
    written = set[str]().union(*(source.written for source in sources.values()))
    differences: dict[str, dict[str, str]] = {name: {} for name in sources}
    for name, source in sources.items():
        module = sys.modules[name]
        for function in _functions([vars(module).get(key) for key in source.names], sources):
            code, digest = function.__code__, code_fingerprint(function.__code__)
            if code.co_filename not in files:
                continue
            known, defaults = files[code.co_filename], _defaults_of(function)
            in_source = () if SETTERS & written else known.defaults.get(code.co_qualname, ())
            if digest not in known.functions.get(code.co_qualname, ()):
                differences[name][function.__qualname__] = digest
            elif in_source and not any(_agree(defaults, one) for one in in_source):
                differences[name][function.__qualname__] = Walk([digest, *defaults]).fingerprint
        for (scope, key), value in source.values.items():
            owner: Any = attribute(module, scope) if scope else module
            if key in written or type(owner) not in (ModuleType, type, ABCMeta) or key not in vars(owner):
                continue
            held = vars(owner)[key]
            if value is IMPORT:
                homes = (sys.modules[home] for home in sources if f"{home}.{key}" in modules[name].imports)
                value = next((attribute(home, key) for home in homes), held)
            differs = {type(held), type(value)} <= CONSTANTS and Walk(held).fingerprint != Walk(value).fingerprint
            if value is FUNCTION:
                differs = all(one.__code__.co_filename != module.__file__ for one in _functions([held], sources))
            if differs:
                differences[name][f"{scope}.{key}".strip(".")] = Walk(held).fingerprint
    return {name: changes for name, changes in differences.items() if changes}


def _is_loaded(name: str) -> bool:
    """Whether a module was imported completely by Python itself; other loaders may compile its file differently."""
    module = sys.modules.get(name)
    spec: Any = getattr(module, "__spec__", None)
    is_plain = type(module) is ModuleType and spec is not None and spec.name == module.__name__ == name
    return is_plain and type(spec.loader) is SourceFileLoader and not getattr(spec, "_initializing", False)


@cache
def _parse(source: bytes | None) -> ModuleSource | None:
    """None without a source, as of installed packages, or if it cannot be compiled."""
    if source is None:
        return None
    try:
        codes = [*codes_in(compile(source, "", "exec", dont_inherit=True))]
    except (SyntaxError, ValueError, RecursionError):
        return None
    module = ModuleSource(set(), {}, {}, {}, set())
    with suppress(RecursionError):  # trees of long chains of elif are deeper than their code
        for name, arguments in [*_arguments_in([ast.parse(source)])]:
            values = map(_constant_of, [*arguments.defaults, *arguments.kw_defaults])
            module.defaults.setdefault(name, []).append([*values])
    for code in codes:
        module.functions.setdefault(code.co_qualname, set()).add(code_fingerprint(code))
        steps, scope = [*dis.get_instructions(code)], "" if code.co_name == "<module>" else code.co_qualname
        times = Counter(step.argval for step in steps if step.opname in ("STORE_NAME", "DELETE_NAME"))
        module.names.update(() if scope else times)
        for before, step in pairwise(steps):
            if step.opname in ("STORE_GLOBAL", "STORE_ATTR") and before.argval != "self":
                module.written.add(step.argval)
            elif step.opname == "STORE_NAME" and times[step.argval] == 1 and "__" not in step.argval:
                if before.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
                    module.values[scope, step.argval] = before.argval
                elif before.opname in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "IMPORT_FROM"):
                    module.values[scope, step.argval] = IMPORT if before.opname == "IMPORT_FROM" else FUNCTION
    if any(DYNAMIC & {*code.co_names} or ("*",) in code.co_consts for code in codes):
        module.values.clear()
    return module


def _arguments_in(nodes: Iterable[ast.AST], scope: str = "") -> Iterator[tuple[str, ast.arguments]]:
    """The arguments of all functions in parts of a tree, by qualified name. scope: what comes before names there."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = f"{scope}{getattr(node, 'name', '<lambda>')}"
            yield name, node.args
            yield from _arguments_in(node.body if isinstance(node.body, list) else [node.body], f"{name}.<locals>.")
            # Defaults and decorators are made where the function is.
            yield from _arguments_in([node.args, *getattr(node, "decorator_list", [])], scope)
        else:
            inside = f"{scope}{node.name}." if isinstance(node, ast.ClassDef) else scope
            yield from _arguments_in(ast.iter_child_nodes(node), inside)


def _constant_of(default: ast.expr | None) -> Any:
    """A default that is a constant, None for an argument without one, and COMPUTED for any other."""
    try:
        value = None if default is None else ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError):
        return COMPUTED
    return value if type(value) in CONSTANTS else COMPUTED


def _defaults_of(function: FunctionType) -> list[Any]:
    """The defaults of a function's arguments, of those by name None where there is none."""
    code, named = function.__code__, function.__kwdefaults__ or {}
    last = code.co_argcount + code.co_kwonlyargcount
    by_name = code.co_varnames[code.co_argcount : last]
    return [*(function.__defaults__ or ()), *map(named.get, by_name)]


def _agree(held: Sequence[Any], written: Sequence[Any]) -> bool:
    """Whether the defaults of a function are those in its source, as far as these are constants."""
    if len(held) != len(written):
        return False
    own, known = ([pair[i] for pair in zip(held, written, strict=True) if pair[1] is not COMPUTED] for i in (0, 1))
    return Walk(own).fingerprint == Walk(known).fingerprint


def code_fingerprint(code: CodeType) -> str:
    """The fingerprint of a function's code, with nested functions."""
    return Walk([(code_signature(one), constants(one)) for one in codes_in(code)]).fingerprint


def _functions(left: list[Any], modules: Mapping[str, Any]) -> Iterator[FunctionType]:
    """The functions in these values and in classes of these modules, as far as decorators expose them."""
    seen = set[int]()
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            yield value
        if isinstance(value, type) and value.__module__ in modules:
            left += [*vars(value).values(), *value.__bases__]
        if isinstance(value, WRAPPERS):
            left += [getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel", "func")]
        left.append(getattr(value, "__dict__", {}).get("__wrapped__"))
