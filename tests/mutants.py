"""Breaks every method on purpose and sees whether its own tests notice.

    python tests/mutants.py [METHOD ...] [--each N] [--jobs N]

A method's test file lists its mutants: what breaks, a text that stands once in the method's file (or in the file of
fedbench/ that is named fourth), and what replaces it. Each is tried in a copy of the project, so that nothing here
changes. Ends with 1 where a mutant survives.
"""

import argparse
import ast
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("fedbench", "fedbench_papers", "tests", "tune_spaces", "pyproject.toml")
COMMON = ("pytest", "hypothesis", "lightning", "torch", "scipy.optimize", "pandas", "pydantic")
"""What every trial needs: imported before its process is forked, because it takes longer than most trials."""
TIMEOUT = 600


def listed(tests: Path) -> list[tuple[str, ...]]:
    """The mutants of a test file: (what breaks, old text, new text) and perhaps a file."""
    for node in ast.parse(tests.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["MUTANTS"]:
            return ast.literal_eval(node.value)
    return []


def source_of(name: str, mutant: tuple[str, ...], root: Path) -> Path:
    """The file that a mutant of a method breaks."""
    return root / "fedbench" / (mutant[3] if len(mutant) > 3 else f"methods/{name}.py")


def caught(job: tuple[str, tuple[str, ...]]) -> bool:
    """Whether the tests of a method fail once the old text is replaced by the new one. In a process of its own."""
    name, (_, old, new, *_) = job
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # pytest ends at it with a code of its own
    signal.alarm(TIMEOUT)
    with tempfile.TemporaryDirectory(prefix="fedbench-mutant-") as made:
        folder = Path(made)
        for part in COPIED:
            whole = ROOT / part
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, folder / part)
        source = source_of(name, job[1], folder)
        text = source.read_text()
        if text.count(old) != 1:
            raise LookupError(
                f"{name}: {old!r} stands {text.count(old)} times in {source.name}, and must stand there once"
            )
        source.write_text(text.replace(old, new))
        os.chdir(folder)
        sys.path.insert(0, made)
        with open("said.txt", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        tests = ["-q", "-x", "-p", "no:cacheprovider", f"tests/methods/test_{name}.py"]
        code = int(import_module("pytest").main(tests))
        where = import_module("fedbench").__file__
        assert where is not None
        if code not in (0, 1) or not where.startswith(made):
            raise RuntimeError(f"{name}: pytest ended with {code}:\n{Path('said.txt').read_text()[-2000:]}")
        return code == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="methods; default: all")
    parser.add_argument("--each", type=int, help="the first so many of each method; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried side by side")
    asked = parser.parse_args()
    if min(asked.jobs, asked.each or 1) < 1:
        parser.error("--jobs and --each are at least 1")
    names = [m.replace("-", "_") for m in asked.methods] or [
        path.stem.removeprefix("test_") for path in sorted((ROOT / "tests" / "methods").glob("test_*.py"))
    ]
    unknown = [name for name in names if not (ROOT / "tests" / "methods" / f"test_{name}.py").exists()]
    if unknown:
        parser.error(f"no tests of method {unknown[0]}: tests/methods/test_{unknown[0]}.py is not there")
    jobs = [
        (name, mutant)
        for name in names
        for mutant in listed(ROOT / "tests" / "methods" / f"test_{name}.py")[: asked.each]
    ]
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}  # before the imports below
    for module in COMMON:
        import_module(module)
    survivors = 0
    with multiprocessing.get_context("fork").Pool(asked.jobs, maxtasksperchild=1) as pool:
        for (name, (what, *_)), found in zip(jobs, pool.imap(caught, jobs), strict=True):
            survivors += not found
            print(f"{'caught  ' if found else 'SURVIVED'}  {name}: {what}", flush=True)
    print(f"{len(jobs) - survivors} of {len(jobs)} caught")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
