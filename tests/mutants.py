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
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from zlib import crc32

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fedbench.checks.mutants import Change, applied, changes  # noqa: E402

METHODS = ROOT / "fedbench" / "methods"
COPIED = ("fedbench", "papers", "tests", "tune_spaces", "pyproject.toml")
COMMON = ("pytest", "hypothesis", "lightning", "torch", "scipy.optimize", "pandas", "pydantic")
"""What every trial needs: imported before its process is forked, because it takes longer than most trials."""
KINDS = ("comparison", "sign", "statement", "constant", "argument", "exchange")
EACH = 8
TIMEOUT = 300
"""Seconds for the tests of one mutant; what takes longer, such as a loop without end, was noticed."""
FAILED, NOTHING_RUN = (1, 2), 5
"""What pytest ends with; 2: the file cannot even be imported."""


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
