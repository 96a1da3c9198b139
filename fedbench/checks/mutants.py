"""A method's class broken on purpose, one small change of its code after another: which of them does no check notice?

A comparison or a sign is flipped, a number or truth value changed, an argument left out or exchanged with its
neighbour, a statement left out. What a line says to people does not count.
"""

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fedbench.checks.check import Check
from fedbench.checks.method_runs import NO_OPTIONS, Keys, MethodRuns
from fedbench.checks.methods import METHOD_CHECKS
from fedbench.checks.problem import Row, trajectory
from fedbench.errors import ConfigError
from fedbench.import_string import keep
from fedbench.methods.base import Method

SPARED = {"Field", "About", "ConfigError"}
"""Calls whose arguments are words for people."""
UNSEEN = {"strict", "device"}
"""Keywords that change no number: lists are of equal length, and checks have one device."""
QUICK = ("runs", "masks", "private", "fresh", "weights", "bytes", "order", "degenerate", "steps")
"""Checks by which a mutant is tried: those that take a second."""


@dataclass(frozen=True)
class Change:
    """kind: of change; what: where it is and what it changes; index: the node's place in `ast.walk`; line: of it.

    make: changes a copy of that node and gives what stands there instead.
    """

    kind: str
    what: str
    index: int
    line: int
    make: Callable[[ast.AST], ast.AST]


def changes(tree: ast.Module) -> Iterator[Change]:
    """Every small change of the code of functions."""
    places = {id(node): index for index, node in enumerate(ast.walk(tree))}
    for where, function in functions(tree):
        for node in code(function):
            for kind, make in ways(node):
                changed = make(deepcopy(node))
                what = f"{where}: {text(node)} -> {text(changed)}"
                yield Change(kind, what, places[id(node)], getattr(node, "lineno", 0), make)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{part.name}", part) for part in node.body if isinstance(part, ast.FunctionDef))


def code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that decide what it computes: no types, no words for people."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments | ast.Yield):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPARED:
        return
    if isinstance(node, ast.keyword) and node.arg in UNSEEN:
        return
    yield node
    spared = {"annotation", "returns", "decorator_list", "ctx"}
    for name, value in ast.iter_fields(node):
        if name not in spared:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from code(part)


FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


def ways(node: ast.AST) -> Iterator[tuple[str, Callable[..., ast.AST]]]:
    """The kinds of change that a node allows."""
    if isinstance(node, ast.Compare):
        yield "comparison", _comparison
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OTHER:
        yield "sign", _sign
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", lambda found: found.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield (
            "constant",
            lambda found: ast.Constant(not found.value if isinstance(found.value, bool) else found.value + 1),
        )
    if isinstance(node, ast.Call) and _seen_keywords(node):
        yield "argument", _left_out
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield "exchange", _exchanged
    if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield "statement", lambda found: ast.Pass()
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "statement", lambda found: ast.Pass()


def _comparison(found: ast.Compare) -> ast.AST:
    found.ops[0] = FLIPPED[type(found.ops[0])]()
    return found


def _sign(found: ast.BinOp | ast.AugAssign) -> ast.AST:
    found.op = OTHER[type(found.op)]()
    return found


def _seen_keywords(call: ast.Call) -> list[ast.keyword]:
    return [keyword for keyword in call.keywords if keyword.arg not in UNSEEN]


def _left_out(found: ast.Call) -> ast.AST:
    found.keywords.remove(_seen_keywords(found)[-1])
    return found


def _exchanged(found: ast.Call) -> ast.AST:
    found.args[:2] = found.args[1::-1]
    return found


def applied(tree: ast.Module, change: Change) -> str:
    """The file with the change."""
    copy = deepcopy(tree)
    old = list(ast.walk(copy))[change.index]
    return ast.unparse(ast.fix_missing_locations(_Replacing(old, change.make(deepcopy(old))).visit(copy)))


class _Replacing(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def text(node: ast.AST) -> str:
    """On one line."""
    return " ".join(ast.unparse(node).split())


@dataclass(frozen=True)
class Mutant:
    """A change of a method's file, and the check that notices it; an empty one if none does."""

    line: int
    what: str
    noticed_by: str

    def __str__(self) -> str:
        return f"line {self.line:<4} {self.noticed_by or 'NO CHECK':<12} {self.what}"


def mutants_of(kind: type[Method], options: Keys = NO_OPTIONS) -> Iterator[Mutant]:
    """Every small change of the code of a method's module, and what notices it first.

    A check notices it if it fails, and the numbers by hand if they are others. Raises ConfigError without a source.
    """
    try:
        source = textwrap.dedent(inspect.getsource(sys.modules[kind.__module__]))
    except (OSError, TypeError) as error:
        raise ConfigError(f"check --mutants: {kind.__name__} has no source: write it into a file") from error
    tree = ast.parse(source)
    checks = [check for check in METHOD_CHECKS if check.name in QUICK]
    with MethodRuns(kind, options) as runs:
        passed = [check for check in checks if check(runs).outcome == "passed"]
    by_hand = numbers(kind, options)
    seen = {change.what: change for change in changes(tree) if concerns(change.what, kind)}
    for number, change in enumerate(seen.values()):
        yield Mutant(
            change.line, change.what, noticed_by(kind, applied(tree, change), number, passed, by_hand, options)
        )


def concerns(what: str, kind: type[Method]) -> bool:
    """Whether a change is in the class or in a function of its module, and in no other class."""
    owner, _, inside = what.partition(":")[0].partition(".")
    return not inside or owner == kind.__name__


def numbers(kind: type[Method], options: Keys) -> list[Row] | None:
    """The numbers by hand, or None for a method that refuses the problem."""
    try:
        return trajectory(kind, options)
    except Exception:
        return None


def noticed_by(
    kind: type[Method], source: str, number: int, checks: list[Check[MethodRuns]], by_hand: Any, options: Keys
) -> str:
    """The name of the first check that fails on a changed file, `numbers`, or an empty text."""
    try:
        broken = load(kind, source, number)
        with MethodRuns(broken, options) as runs:
            if failed := next((check.name for check in checks if check(runs).outcome == "failed"), ""):
                return failed
    except Exception:
        return "runs"  # it cannot even be loaded
    return "numbers" if by_hand is not None and numbers(broken, options) != by_hand else ""


def load(kind: type[Method], source: str, number: int) -> type[Method]:
    """The class of a changed file, as a module of its own that only this process knows."""
    name = f"{kind.__module__}_mutant_{number}"
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, file, "exec"), vars(module))
    found: type[Method] = getattr(module, kind.__name__)
    keep(f"{name}:{kind.__name__}", found)
    return found
