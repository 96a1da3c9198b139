"""Folders of installed packages made of links to those of this environment, so that nothing is downloaded."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_path("purelib"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def closure(requirements: Iterable[str]) -> dict[str, Distribution]:
    """The packages of this environment that pip would install for these requirements, by name."""
    found: dict[str, Distribution] = {}
    seen, waiting = set[tuple[str, str]](), [(Requirement(text), "") for text in requirements]
    while waiting:
        need, extra = waiting.pop()
        if need.marker and not need.marker.evaluate({"extra": extra}):
            continue
        try:
            found[_plain(need.name)] = package = distribution(need.name)
        except PackageNotFoundError:  # for other systems or versions than pip chose here
            continue
        for own in ("", *need.extras):
            if (_plain(need.name), own) not in seen:
                seen.add((_plain(need.name), own))
                waiting += [(Requirement(text), own) for text in package.requires or ()]
    return found


def link(packages: Iterable[Distribution], folder: Path) -> Path:
    """A folder with these packages alone."""
    folder.mkdir(parents=True)
    for package in packages:
        for name in sorted(_top_level(package)):
            if not (folder / name).exists():
                (folder / name).symlink_to(package.locate_file(name))  # type: ignore[arg-type]
    return folder


def _top_level(package: Distribution) -> Iterator[str]:
    names = {file.parts[0] for file in package.files or ()}
    yield from (name for name in names if name not in ("..", "bin", "__pycache__") and (SITE / name).exists())


def python(*words: str, sites: Iterable[Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder with packages from these folders alone."""
    path = os.pathsep.join(map(str, sites))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-S", *words], cwd=cwd, env=env, capture_output=True, text=True)


def size(packages: Iterable[Distribution]) -> int:
    """Bytes of the files of packages, as pip recorded them."""
    return sum(file.size or 0 for package in packages for file in package.files or ())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
