"""`fedbench doctor`: checks the installation and this machine, and says what to do about each problem."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from fedbench import processor
from fedbench.cli import command
from fedbench.cli.exits import FAILED, OK
from fedbench.cli.lines import loading
from fedbench.errors import ConfigError
from fedbench.installation import (
    DEPENDENCIES,
    DISTRIBUTION,
    EXTRAS,
    install,
    missing,
    other_fedbench,
    version,
    version_of,
)

USAGE = (
    "usage: fedbench doctor\n\n"
    "Checks packages, cores, GPUs, memory, shared memory, the cache, writing, Ray and W&B.\n"
    "Exits with 1 if something is wrong. Starts a Ray for a moment, sends nothing."
)
SHOWN = ("torch", "lightning", "ray", "wandb")
"""Packages whose versions matter most when a problem is reported."""
LEAST_MEMORY, LEAST_SHARED, LEAST_CACHE = 4, 1, 5
"""GiB below which a remark is due: memory for a few hosts, shared memory for messages, room for data sets."""
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """What a check found. remedy: what to do; if there is none, all is well. is_wrong: whether runs will fail."""

    name: str
    text: str
    remedy: str = ""
    is_wrong: bool = False

    def __str__(self) -> str:
        mark = "wrong" if self.is_wrong else "note" if self.remedy else "ok"
        return f"{mark:<6} {self.name:<14} {self.text}" + (f": {self.remedy}" if self.remedy else "")


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Prints a line per check."""
    if argv:
        raise ConfigError(f"doctor {' '.join(argv)}: takes no arguments")
    if _print_all(check_packages()):
        return FAILED  # the other checks need these packages
    loading("looking at the machine")
    return FAILED if sum(_print_all(check()) for check in CHECKS) else OK


def _print_all(findings: Iterator[Finding]) -> int:
    """Prints findings as they come; returns how many are wrong."""
    wrong = 0
    for finding in findings:
        print(finding, flush=True)
        wrong += finding.is_wrong
    return wrong


def check_packages() -> Iterator[Finding]:
    """The versions of this installation, its extras, and each package that is missing, too old or too new."""
    from packaging.requirements import Requirement

    known, python = version(), f"Python {platform.python_version()}"
    remedy = "" if known else f"pip install {DISTRIBUTION}, or in a checkout pip install -e ."
    yield Finding("fedbench", f"{known or 'not installed as a package'}, {python}", remedy)
    if line := other_fedbench():
        problem, _, todo = line.partition(": ")
        yield Finding("fedbench", problem, todo, is_wrong=True)
    yield Finding("packages", ", ".join(f"{name} {number}" for name in SHOWN if (number := version_of(name))))
    present = [name for name in EXTRAS if not missing(name)]
    yield Finding("extras", ", ".join(present) or "none")
    for name in (*DEPENDENCIES, *EXTRAS):
        if lacking := missing(name):
            yield Finding("extras", f"without {' and '.join(lacking)}", install(name))
    late = {module.replace("_", "-") for name in DEPENDENCIES for module in DEPENDENCIES[name] if missing(name)}
    for text in (metadata.requires(DISTRIBUTION) or ()) if known else ():
        needed = Requirement(text)
        if needed.marker and not any(needed.marker.evaluate({"extra": name}) for name in ("", *present)):
            continue
        if needed.name in late:
            continue
        have = version_of(needed.name) or "missing"
        if have == "missing" or not needed.specifier.contains(have, prereleases=True):
            todo = f"pip install '{needed.name}{needed.specifier}'"
            yield Finding("packages", f"{needed.name} {have}, {needed.specifier} is needed", todo, is_wrong=True)


def check_machine() -> Iterator[Finding]:
    """Cores, memory and shared memory."""
    yield Finding("cores", f"{processor.cores()} usable of {os.cpu_count()}, {processor.name()}")
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (page * os.sysconf(name) / GIB for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
        few = "" if total >= LEAST_MEMORY else "run with few hosts, or in one process with --hosts 0"
        yield Finding("memory", f"{total:.1f} GiB, {free:.1f} GiB unused", few)
    if (memory := Path("/dev/shm")).is_dir():
        free = shutil.disk_usage(memory).free / GIB
        few = "messages go through the disk; in a container, give it more with --shm-size 8g"
        yield Finding("shared memory", f"{free:.1f} GiB free", "" if free >= LEAST_SHARED else few)


def check_modules() -> Iterator[Finding]:
    """A note if no process finds PyTorch compiled, as in a container that sets PYTHONDONTWRITEBYTECODE."""
    spec = find_spec("torch")
    if sys.dont_write_bytecode and spec and spec.origin and not Path(cache_from_source(spec.origin)).exists():
        text = "none is compiled, and PYTHONDONTWRITEBYTECODE keeps it so: every process takes twice as long to start"
        yield Finding(
            "modules", text, f"unset it for one command, or python -m compileall -q {Path(spec.origin).parents[1]}"
        )


def check_compiler() -> Iterator[Finding]:
    """The C++ compiler, with which tiny models train several times faster on a processor."""
    path = processor.compiler()
    yield Finding("compiler", path or "none, tiny models train without", "" if path else "install g++")


def check_gpus() -> Iterator[Finding]:
    """The GPUs that PyTorch sees; wrong if there is one that it cannot use."""
    import torch

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        yield from (Finding("GPU", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB") for gpu in gpus)
    elif any(Path("/dev").glob("nvidia[0-9]*")):
        built = torch.version.cuda or "no CUDA"
        remedy = f"PyTorch is built for {built}; install the driver or the PyTorch that match (`nvidia-smi` names both)"
        yield Finding("GPU", "there is one that PyTorch cannot use", remedy, is_wrong=True)
    else:
        yield Finding("GPU", "none, models are trained on the processor")


def check_folders() -> Iterator[Finding]:
    """The cache of data sets, and the folder from which commands write `results/`."""
    from fedbench.cache_folder import root

    for name, folder, remedy in (
        ("cache", root(), "set FEDBENCH_CACHE to a folder in which you may write"),
        ("results", Path.cwd(), "start commands from a folder in which you may write, or name one with --out"),
    ):
        if problem := _cannot_write(folder):
            yield Finding(name, f"{folder} cannot be written ({problem})", remedy, is_wrong=True)
            continue
        free = shutil.disk_usage(_closest_existing(folder)).free / GIB
        few = "" if free >= LEAST_CACHE else "data sets and kept models may not fit: make room there"
        yield Finding(name, f"{folder}, {free:.0f} GiB free", few)


def _closest_existing(folder: Path) -> Path:
    """The folder, or its closest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _cannot_write(folder: Path) -> str:
    try:
        tempfile.TemporaryFile(dir=_closest_existing(folder)).close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def check_ray() -> Iterator[Finding]:
    """Whether a Ray of one machine starts."""
    if missing("ray"):
        return
    from fedbench.config import Config
    from fedbench.runtime.ray.cluster import connect, describe_machines

    try:
        with connect(Config(resources={"hosts": 1})) as ray:
            yield Finding("Ray", f"starts: {describe_machines(ray)}")
    except ConfigError as error:
        yield Finding("Ray", "does not start", str(error), is_wrong=True)


def check_wandb() -> Iterator[Finding]:
    """Whether W&B would find an account; nothing is sent."""
    if missing("wandb"):
        return
    from fedbench.tracking.wandb_log import has_account, possible_mode

    if has_account():
        yield Finding("W&B", f"an account is set up; --loggers wandb writes {possible_mode('auto')}")
    else:
        yield Finding("W&B", "no account: --loggers wandb writes offline; `wandb login` connects one")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_machine,
    check_modules,
    check_compiler,
    check_gpus,
    check_folders,
    check_ray,
    check_wandb,
)
"""After that of the packages, in this order."""
