"""Answers of commands that train nothing, kept until anything changes of which they were made.

Such an answer takes milliseconds to compute and seconds to import PyTorch and Lightning for. It is kept in
`$FEDBENCH_CACHE/answers/KEY.json` with the state of every file and folder that it depends on, and given again only
if all of these are as they were: the code of fedbench, of all packages that plug in, and of every other module that is
no installed library; the libraries by version and time of installation; the files of data and results that the command
names. Where PyTorch has been imported already, as in a program that calls a command, nothing is looked up.
"""

import json
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedbench.cache_folder import root
from fedbench.checksums import is_changed, with_own_checksum
from fedbench.plugins import plugged_packages
from fedbench.processor import cores

SPACES = "tune_spaces"
OURS = ("fedbench", SPACES)
READ = (
    "FEDBENCH_",
    "RAY_",
    "CUDA_",
    "OMP_",
    "MKL_",
    "TORCH_",
    "HF_",
    "PYTHON",
    "SLURM_",
    "WANDB_",
    "XDG_",
    "HOME",
    "TMPDIR",
)
"""How the names of environment variables begin on which an answer may depend."""
MOST_KEPT = 200
"""Answers that are kept; the oldest are removed."""
LIBRARIES = ("site-packages", "dist-packages")

State = list[int] | str | None
"""Of a file its size and times; of a folder a hash of the names, sizes and times of all files in it; None: missing."""


@dataclass(frozen=True)
class Question:
    """What a command was asked. words: as JSON, all that decides the answer beside files and the machine."""

    words: Any
    may_be_kept: bool = True

    @cached_property
    def file(self) -> Path:
        """Where its answer is kept."""
        question = [self.words, *_machine(), *_libraries()]
        return (
            root()
            / "answers"
            / f"{sha256(json.dumps(question, sort_keys=True, default=str).encode()).hexdigest()}.json"
        )

    def known(self) -> str | None:
        """The answer, if there is one of which nothing has changed since."""
        if "torch" in sys.modules or not self.may_be_kept:
            return None
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(self.file.read_text())
            if not is_changed(kept, self.file.name) and all(
                state_of(Path(path)) == before for path, before in kept["states"].items()
            ):
                return str(kept["answer"])
        return None

    def keep(self, answer: str, paths: Iterable[Path] = ()) -> None:
        """Keeps an answer. paths: the files and folders beside code that it depends on. A full disk keeps none."""
        if not self.may_be_kept:
            return
        states = {str(path): state_of(path) for path in (*_sources(), *paths)}
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            part = self.file.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(with_own_checksum({"answer": answer, "states": states}, self.file.name)))
            part.replace(self.file)
            kept = sorted(self.file.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for path in kept[:-MOST_KEPT]:
                path.unlink(missing_ok=True)


def state_of(path: Path) -> State:
    """The state of a file or folder, which is another one after every change."""
    try:
        stat = path.stat()
    except OSError:
        return None
    if not path.is_dir():
        return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    digest = sha256()
    for name, size, written, changed in sorted(_files_in(str(path), "")):
        digest.update(f"{name}\0{size} {written} {changed}\n".encode())
    return digest.hexdigest()


def _files_in(folder: str, above: str) -> Iterator[tuple[str, int, int, int]]:
    """Name below the first folder, size and times of every file, without compiled code; folders by their names."""
    for entry in os.scandir(folder):
        name = above + entry.name
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield f"{name}/", 0, 0, 0
                yield from _files_in(entry.path, f"{name}/")
        else:
            stat = entry.stat()
            yield name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _machine() -> list[Any]:
    """What an answer may depend on of machine, environment and working folder."""
    read = {name: value for name, value in os.environ.items() if name.startswith(READ)}
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia*"))
    return [platform.node(), sys.version, sys.path, os.getcwd(), cores(), gpus, read]


def _libraries() -> list[Any]:
    """The installed distributions with the time of their installation, and what can be imported from elsewhere.

    A file that is new in the working folder may have the name of a module.
    """
    libraries: list[Any] = []
    for folder in dict.fromkeys(sys.path):
        is_library = _is_library(Path(folder))
        with suppress(OSError):
            for entry in sorted(os.scandir(folder or "."), key=lambda entry: entry.name):
                if entry.name.endswith((".dist-info", ".egg-info", ".pth")):
                    libraries.append([entry.path, entry.stat().st_mtime_ns])
                elif not is_library and entry.name.endswith(".py"):
                    libraries.append(entry.path)
    return libraries


def _sources() -> Iterator[Path]:
    """The folders of fedbench, of all packages that plug in and of spaces, and the files of modules of no library."""
    folders = set[Path]()
    for name in (*OURS, *plugged_packages()):
        spec = find_spec(name)
        paths = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
        folders |= {Path(path) for path in paths if path and path not in ("built-in", "frozen")}
    folders |= {Path(path, SPACES) for path in sys.path if not _is_library(Path(path))}
    yield from sorted(folders)
    for module in [*sys.modules.values()]:
        file = Path(getattr(module, "__file__", None) or "/")
        if file.suffix == ".py" and not _is_library(file) and folders.isdisjoint(file.parents):
            yield file


def _is_library(path: Path) -> bool:
    """Whether a path is in a folder of installed libraries, or of Python itself."""
    return not {*LIBRARIES}.isdisjoint(path.parts) or any(map(path.is_relative_to, _standard_libraries()))


@cache
def _standard_libraries() -> tuple[str, str]:
    return sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
