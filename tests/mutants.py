"""Breaks every method on purpose and sees whether its own tests notice.

    python tests/mutants.py [METHOD ...] [--each N] [--jobs N]

A method's test file lists its mutants: what breaks, a text that stands once in the method's file (or in the file of
fedbench/ that is named fourth), and what replaces it. Each is tried in a copy of the project, so that nothing here
changes. Ends with 1 where a mutant survives.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("fedbench", "tests", "tune_spaces", "pyproject.toml")
TIMEOUT = 600


def listed(tests: Path) -> list[tuple[str, ...]]:
    """The mutants of a test file: (what breaks, old text, new text) and perhaps a file."""
    for node in ast.parse(tests.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["MUTANTS"]:
            return ast.literal_eval(node.value)
    return []


def caught(name: str, old: str, new: str, file: str = "") -> bool:
    """Whether the tests of a method fail once the old text is replaced by the new one."""
    with tempfile.TemporaryDirectory(prefix="fedbench-mutant-") as made:
        folder = Path(made)
        for part in COPIED:
            whole = ROOT / part
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, folder / part)
        source = folder / "fedbench" / (file or f"methods/{name}.py")
        text = source.read_text()
        if text.count(old) != 1:
            raise SystemExit(
                f"{name}: {old!r} stands {text.count(old)} times in {source.name}, and must stand there once"
            )
        source.write_text(text.replace(old, new))
        tests = ["-q", "-x", "-p", "no:cacheprovider", f"tests/methods/test_{name}.py"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *tests], cwd=folder, env=environment, capture_output=True, timeout=TIMEOUT
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"{name}: pytest ended with {done.returncode}:\n{done.stdout.decode()[-2000:]}")
        return done.returncode == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="methods; default: all")
    parser.add_argument("--each", type=int, help="the first so many of each method; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried side by side")
    asked = parser.parse_args()
    names = [m.replace("-", "_") for m in asked.methods] or [
        path.stem.removeprefix("test_") for path in sorted((ROOT / "tests" / "methods").glob("test_*.py"))
    ]
    jobs = [
        (name, mutant)
        for name in names
        for mutant in listed(ROOT / "tests" / "methods" / f"test_{name}.py")[: asked.each]
    ]
    survivors = 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        for (name, (what, *_)), found in zip(jobs, pool.map(lambda j: caught(j[0], *j[1][1:]), jobs), strict=True):
            survivors += not found
            print(f"{'caught  ' if found else 'SURVIVED'}  {name}: {what}", flush=True)
    print(f"{len(jobs) - survivors} of {len(jobs)} caught")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
