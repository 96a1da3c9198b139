"""Breaks every method on purpose and sees whether the tests notice.

    python tests/mutants.py [METHOD ...] [--each N] [--jobs N] [--list]

A mutant is a method's file with one small change of its syntax tree: a comparison or a sign flipped, a number or truth
value changed, an argument left out or exchanged with its neighbour, a statement left out. Which ones are tried is drawn
by their own text, so that every run tries the same. Each is tried in a copy of the project by the method's own tests,
and where these pass by those of conformance and of the contract. Ends with 1 where a mutant survives that
`tests/equivalent.yaml` does not explain.
"""

import argparse
import ast
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from zlib import crc32

import yaml

ROOT = Path(__file__).resolve().parent.parent
METHODS = ROOT / "fedbench" / "methods"
COPIED = ("fedbench", "papers", "tests", "tune_spaces", "pyproject.toml")
COMMON = ("pytest", "hypothesis", "lightning", "torch", "scipy.optimize", "pandas", "pydantic")
"""What every trial needs: imported before its process is forked, because it takes longer than most trials."""
KINDS = ("comparison", "sign", "statement", "constant", "argument", "exchange")
EACH = 8
TIMEOUT = 300
"""Seconds for the tests of one mutant; what takes longer, such as a loop without end, was noticed."""
SPARED = {"Field", "About", "ConfigError"}
"""Calls whose arguments are words for people."""
FAILED, NOTHING_RUN = (1, 2), 5
"""What pytest ends with; 2: the file cannot even be imported."""
UNSEEN = {"strict", "device"}
"""Keywords that change no number: lists are of equal length, and tests have one device."""


@dataclass(frozen=True)
class Mutant:
    """what: where it is and what it changes, by which it is known; source: the whole file."""

    method: str
    kind: str
    what: str
    source: str


def mutants(path: Path, each: int = EACH) -> list[Mutant]:
    """So many of a method's file, of all kinds by turns."""
    tree, method = ast.parse(path.read_text()), path.stem.replace("_", "-")
    kinds: dict[str, list[Change]] = {kind: [] for kind in KINDS}
    for change in {change.what: change for change in changes(tree)}.values():
        kinds[change.kind].append(change)
    drawn = [sorted(found, key=lambda c: crc32(f"{method} {c.what}".encode())) for found in kinds.values()]
    turns = [change for turn in zip_longest(*drawn) for change in turn if change is not None]
    return [Mutant(method, change.kind, change.what, applied(tree, change)) for change in turns[:each]]


@dataclass(frozen=True)
class Change:
    """index: the node's place in `ast.walk`; make: changes a copy of that node and gives what stands there instead."""

    kind: str
    what: str
    index: int
    make: Callable[[ast.AST], ast.AST]


def changes(tree: ast.Module) -> Iterator[Change]:
    """Every small change of the code of functions."""
    places = {id(node): index for index, node in enumerate(ast.walk(tree))}
    for where, function in functions(tree):
        for node in code(function):
            for kind, make in ways(node):
                changed = make(deepcopy(node))
                yield Change(kind, f"{where}: {text(node)} -> {text(changed)}", places[id(node)], make)


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


def equivalents() -> dict[str, dict[str, str]]:
    """By method, mutants that change nothing, and why."""
    return yaml.safe_load((ROOT / "tests" / "equivalent.yaml").read_text()) or {}


def is_caught(mutant: Mutant) -> bool:
    """Whether a test fails. In a process of its own."""
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.alarm(TIMEOUT)
    with tempfile.TemporaryDirectory(prefix="fedbench-mutant-") as made:
        folder, file = Path(made), f"{mutant.method.replace('-', '_')}.py"
        for part in COPIED:
            whole = ROOT / part
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, folder / part)
        (folder / "fedbench" / "methods" / file).write_text(mutant.source)
        os.chdir(folder)
        sys.path.insert(0, made)
        with open("said.txt", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        own = [f"tests/methods/test_{file}"]
        shared = ["tests/conformance/test_methods.py", "-k", f"[{mutant.method} and not ray"]
        common = ["tests/methods/test_base.py", "-k", f"[{mutant.method}- or -{mutant.method}-"]
        return any(_fails(words, made) for words in (own, shared, common))


def _fails(words: list[str], made: str) -> bool:
    try:
        code = int(import_module("pytest").main(["-q", "-x", "-p", "no:cacheprovider", "-n", "0", *words]))
    except TimeoutError:
        return True
    where = import_module("fedbench").__file__
    assert where is not None
    if code not in (0, *FAILED, NOTHING_RUN) or not where.startswith(made):
        raise RuntimeError(f"pytest ended with {code}:\n{Path('said.txt').read_text()[-2000:]}")
    return code in FAILED


def _time_is_up(*_: object) -> None:
    raise TimeoutError


def methods() -> list[str]:
    from fedbench.methods import names

    return names()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="methods; default: all")
    parser.add_argument("--each", type=int, default=EACH, help=f"mutants of each method; default: {EACH}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried side by side")
    parser.add_argument("--list", action="store_true", help="print them and try none")
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if min(asked.jobs, asked.each) < 1:
        parser.error("--jobs and --each are at least 1")
    if unknown := set(asked.methods) - set(methods()):
        parser.error(f"no method {min(unknown)}")
    jobs = [
        mutant
        for name in asked.methods or methods()
        for mutant in mutants(METHODS / f"{name.replace('-', '_')}.py", asked.each)
    ]
    if asked.list:
        print(*(f"{mutant.method}: {mutant.what}" for mutant in jobs), sep="\n")
        return 0
    return tried(jobs, asked.jobs)


def tried(jobs: list[Mutant], side_by_side: int) -> int:
    """Tries mutants and says of each what came of it; 1 where one survived that should not."""
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}  # before the imports below
    for module in [name for name in sys.modules if name.partition(".")[0] in ("fedbench", "tests")]:
        del sys.modules[module]  # a trial imports its own
    for module in COMMON:
        import_module(module)
    survivors, explained = 0, equivalents()
    with multiprocessing.get_context("fork").Pool(side_by_side, maxtasksperchild=1) as pool:
        for mutant, caught in zip(jobs, pool.imap(is_caught, jobs), strict=True):
            why = explained.get(mutant.method, {}).get(mutant.what)
            survivors += not caught and why is None
            word = "caught  " if caught else "SURVIVED" if why is None else "same    "
            print(f"{word}  {mutant.method}: {mutant.what}{f' ({why})' if why else ''}", flush=True)
    print(f"{len(jobs) - survivors} of {len(jobs)} caught or without effect")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
