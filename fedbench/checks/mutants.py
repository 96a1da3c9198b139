"""A method's class broken on purpose, one small change of its code after another: which of them does no check notice?

A comparison or a sign is flipped, a number or truth value changed, an argument left out or exchanged with its
neighbour, a statement left out. What a line says to people does not count.
"""

import ast
import inspect
import linecache
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

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
QUICK = (
    *("runs", "masks", "private", "read", "frozen", "statistics", "fresh", "weights", "bytes", "order"),
    *("degenerate", "steps"),
)
"""Checks by which a mutant is tried: those that take a second."""

TEST_WIDTH = 24
"""Letters of the name of a test."""
LONGEST, NO_TESTS = 600, 5
"""Seconds after which tests that do not end have noticed a change; pytest's exit code where a file has none."""
PLUGIN = "fedbench_changed_module"
INSTEAD = """
import importlib.util
import sys

parent, _, own = {module!r}.rpartition(".")
spec = importlib.util.spec_from_file_location({module!r}, {file!r})
module = sys.modules[{module!r}] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if parent:
    setattr(importlib.import_module(parent), own, module)
"""
"""A plugin of pytest that puts a changed file in the place of a module before tests import it."""


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
        yield "sign", lambda spot: spot.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield (
            "constant",
            lambda spot: ast.Constant(not spot.value if isinstance(spot.value, bool) else spot.value + 1),
        )
    if isinstance(node, ast.Call) and _seen_keywords(node):
        yield "argument", _left_out
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield "exchange", _exchanged
    if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield "statement", lambda spot: ast.Pass()
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "statement", lambda spot: ast.Pass()


def _comparison(node: ast.Compare) -> ast.AST:
    node.ops[0] = FLIPPED[type(node.ops[0])]()
    return node


def _sign(node: ast.BinOp | ast.AugAssign) -> ast.AST:
    node.op = OTHER[type(node.op)]()
    return node


def _seen_keywords(call: ast.Call) -> list[ast.keyword]:
    return [keyword for keyword in call.keywords if keyword.arg not in UNSEEN]


def _left_out(call: ast.Call) -> ast.AST:
    call.keywords.remove(_seen_keywords(call)[-1])
    return call


def _exchanged(call: ast.Call) -> ast.AST:
    call.args[:2] = call.args[1::-1]
    return call


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
    """A change of a method's file, and the check and the author's test that notice it first.

    An empty text where none does; `test` is None where no tests are given.
    """

    line: int
    what: str
    noticed_by: str
    test: str | None = None

    def __str__(self) -> str:
        test = "" if self.test is None else f"{self.test or 'NO TEST':<{TEST_WIDTH}} "
        return f"line {self.line:<4} {self.noticed_by or 'NO CHECK':<12} {test}{self.what}"


class Breaking:
    """A method's class that is broken in small ways. tests: the author's file of pytest, or None.

    Raises ConfigError without a source, and for tests that do not pass on the class as it is.
    """

    def __init__(self, kind: type[Method], options: Keys = NO_OPTIONS, tests: Path | None = None) -> None:
        self.kind, self.options, self.tests = kind, options, tests
        try:
            self.source = textwrap.dedent(inspect.getsource(sys.modules[kind.__module__]))
        except (OSError, TypeError) as error:
            raise ConfigError(f"check --mutants: {kind.__name__} has no source: write it into a file") from error
        self.tree = ast.parse(self.source)
        if tests and (failed := failing_test(tests, kind.__module__, self.source)):
            raise ConfigError(f"check --tests {tests}: fails on {kind.__name__} as it is: {failed}; correct it first")

    @cached_property
    def passed(self) -> list[Check[MethodRuns]]:
        """The checks that pass on the class as it is."""
        with MethodRuns(self.kind, self.options) as runs:
            return [check for check in METHOD_CHECKS if check.name in QUICK and check(runs).outcome == "passed"]

    @cached_property
    def by_hand(self) -> list[Row] | None:
        return numbers(self.kind, self.options)

    def changes(self) -> list[Change]:
        """Every small change of the code of the method's module that concerns the class."""
        seen = {change.what: change for change in changes(self.tree) if concerns(change.what, self.kind)}
        return list(seen.values())

    def mutant(self, change: Change) -> Mutant:
        """What notices a change first: a check that fails, else other numbers by hand; and which test."""
        source = applied(self.tree, change)
        test = failing_test(self.tests, self.kind.__module__, source) if self.tests else None
        return Mutant(change.line, change.what, self._check_that_fails(source, change), test)

    def _check_that_fails(self, source: str, change: Change) -> str:
        try:
            broken = load(self.kind, source, change)
            with MethodRuns(broken, self.options) as runs:
                if failed := next((check.name for check in self.passed if check(runs).outcome == "failed"), ""):
                    return failed
        except Exception:
            return "runs"  # it cannot even be loaded
        return "numbers" if self.by_hand is not None and numbers(broken, self.options) != self.by_hand else ""


def failing_test(tests: Path, module: str, source: str) -> str:
    """The first test of a file that fails where a module has this source; empty if all pass. Raises ConfigError."""
    with tempfile.TemporaryDirectory(prefix="fedbench-mutant-") as folder:
        changed = Path(folder) / "changed.py"
        changed.write_text(source)
        (Path(folder) / f"{PLUGIN}.py").write_text(INSTEAD.format(module=module, file=str(changed)))
        path = os.pathsep.join([folder, *filter(None, sys.path)])
        words = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", PLUGIN, "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                [*words, str(tests)],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired:
            return "no end"
    if done.returncode == NO_TESTS:
        raise ConfigError(f"check --tests {tests}: holds no tests; name a file of pytest")
    failures = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failures[0].rpartition("::")[2] if failures else "" if done.returncode == 0 else "import"


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


def load(kind: type[Method], source: str, change: Change) -> type[Method]:
    """The class of a changed file, as a module of its own that only this process knows."""
    name = f"{kind.__module__}_mutant_{change.kind}_{change.index}"
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, file, "exec"), vars(module))
    loaded: type[Method] = getattr(module, kind.__name__)
    keep(f"{name}:{kind.__name__}", loaded)
    return loaded
