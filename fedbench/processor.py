"""The processor, as described by Linux, the cores that this process may use, and the compiler for it."""

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path

SLURM = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
"""A task's share of a Slurm job, and the job's share of this machine; not every site enforces them by affinity."""


@cache
def processor_facts() -> dict[str, str]:
    """The entries of one core in /proc/cpuinfo; none if the file is missing."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text().strip().split("\n\n")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def name() -> str:
    """The model name."""
    return processor_facts().get("model name") or platform.processor()


def has(instructions: str) -> bool | None:
    """Whether it has these instructions, such as avx512f or any with bf16; None if Linux does not say."""
    listed = processor_facts().get("flags") or processor_facts().get("Features")
    return None if listed is None else instructions in listed


def compiler() -> str | None:
    """The C++ compiler that PyTorch would use, the one in CXX or g++; None without one."""
    return shutil.which(os.environ.get("CXX", "g++"))


@cache
def cores() -> int:
    """The cores that this process may use: the minimum of affinity, quota (rounded down) and Slurm's share."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [int(text) for name in SLURM if (text := os.environ.get(name, "")).isdecimal()]
    return max(1, int(min(usable, quota(), *shares)))


def quota(member: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> float:
    """Cores granted by this process's control groups and their parents; infinite without a limit.

    joblib.cpu_count() reads the outermost group only and misses limits that systemd and Slurm set for a unit or a job.
    """
    try:
        lines = member.read_text().splitlines()
    except OSError:
        return inf
    return min((_granted_cores(group) for line in lines for group in _groups(line, mounted)), default=inf)


def _groups(line: str, mounted: Path) -> Iterator[Path]:
    """The folders of a group and its parents from a line of /proc/self/cgroup; none for memory groups."""
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return
    innermost = Path(path.lstrip("/"))
    for group in (innermost, *innermost.parents):
        yield mounted / ("cpu" if controllers else "") / group


def _granted_cores(group: Path) -> float:
    """No limit is `max 100000` in version 2 and a quota of -1 in version 1."""
    with suppress(OSError, ValueError):
        files = (
            [group / "cpu.max"]
            if (group / "cpu.max").exists()
            else [group / f"cpu.cfs_{n}_us" for n in ("quota", "period")]
        )
        limit, period = (int(word) for file in files for word in file.read_text().split())
        return limit / period if limit > 0 else inf
    return inf
