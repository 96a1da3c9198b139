"""Prints the test files of what has changed.

    python tests/touched.py [SINCE]

SINCE: a commit, or the branch that this one left; by default the last commit. Files that git does not know yet count as
changed. A module has the test file that mirrors it. Any other file has the tests that name it and those of the modules
that name it, or else those of its folder.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = {Path("fedbench"): Path("tests"), Path("papers", "fedbench_papers"): Path("tests", "papers")}
"""Where the tests of a package are."""
SLOW = ("tests/conformance", "tests/end_to_end")
"""Run only where one of their own files has changed."""

Texts = dict[str, str]


def changed(since: str = "HEAD", root: Path = ROOT) -> list[str]:
    """Files that differ and new ones, relative to the root; without those that are gone."""
    listed = [
        subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
        for words in (["diff", "--name-only", "--merge-base", since], ["ls-files", "--others", "--exclude-standard"])
    ]
    return sorted(name for name in {*listed[0], *listed[1]} if (root / name).is_file())


def affected(files: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files of these files, each once."""
    tests = texts(root, "tests", "test_*.py")
    modules = {name: text for package in TESTS for name, text in texts(root, str(package), "*.py").items()}
    return sorted({test for file in files for test in _affected_by(Path(file), tests, modules)})


def texts(root: Path, folder: str, which: str) -> Texts:
    """By their names, those of all files below a folder."""
    return {str(path.relative_to(root)): path.read_text() for path in sorted((root / folder).rglob(which))}


def _affected_by(file: Path, tests: Texts, modules: Texts) -> Iterable[str]:
    if str(file) in tests:
        return [str(file)]
    if file.name == "conftest.py":
        return [test for test in tests if Path(test).is_relative_to(file.parent)]
    if mirror(file) in tests:
        return [mirror(file)]
    naming = [test for test in _naming(file, tests) if file.suffix != ".py" or not test.startswith(SLOW)]
    naming += [test for module in _naming(file, modules) if (test := mirror(Path(module))) in tests]
    return naming or [test for test in tests if Path(test).parent == Path(mirror(file)).parent]


def mirror(module: Path) -> str:
    """Where the tests of a module are: `fedbench/a/b.py` has `tests/a/test_b.py`."""
    package = next((package for package in TESTS if module.is_relative_to(package)), Path())
    return str(TESTS.get(package, Path()) / module.relative_to(package).with_name(f"test_{module.name}"))


def _naming(file: Path, texts: Texts) -> Iterator[str]:
    """Those that import a module, or in whose text the name of another file stands."""
    package, name = (re.escape(part) for part in (".".join(file.parts[:-1]).removeprefix("papers."), file.stem))
    imports = rf"^ *(from {package}\.{name} import|import {package}\.{name}\b|from {package} import .*\b{name}\b)"
    pattern = re.compile(imports if file.suffix == ".py" else re.escape(file.name), re.MULTILINE)
    return (other for other, text in texts.items() if pattern.search(text))


if __name__ == "__main__":
    print(*affected(changed(*sys.argv[1:2])), sep="\n")
