"""The processor, as Linux describes it, and how much of it this process may use."""

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path

SLURM = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
"""A task's share of a Slurm job, and the job's share of this machine, which not every site enforces by affinity."""


@cache
def described_processor() -> dict[str, str]:
    """The entries of one core in /proc/cpuinfo; none where there is no such file."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text().strip().split("\n\n")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def name() -> str:
    """What its maker calls it."""
    return described_processor().get("model name") or platform.processor()


def has(instructions: str) -> bool | None:
    """Whether it has these instructions, such as avx512f or any with bf16; None where Linux does not say."""
    listed = described_processor().get("flags") or described_processor().get("Features")
    return None if listed is None else instructions in listed


@cache
def cores() -> int:
    """How many cores this process may use: the least of affinity, quota (rounded down) and Slurm's share."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [int(text) for name in SLURM if (text := os.environ.get(name, "")).isdecimal()]
    return max(1, int(min(usable, quota(), *shares)))


def quota(member: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> float:
    """Cores that the control groups of this process grant it, those around its own included; infinite without a limit.

    joblib.cpu_count() looks at the outermost group alone, and misses what systemd and Slurm set for a unit or a job.
    """
    try:
        lines = member.read_text().splitlines()
    except OSError:
        return inf
    return min((_granted(group) for line in lines for group in _groups(line, mounted)), default=inf)


def _groups(line: str, mounted: Path) -> Iterator[Path]:
    """The folders of a group and of those around it, of a line of /proc/self/cgroup; none where it is about memory."""
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return
    own = Path(path.lstrip("/"))
    for group in (own, *own.parents):
        yield mounted / ("cpu" if controllers else "") / group


def _granted(group: Path) -> float:
    """Version 2 writes `max 100000` where there is no limit, version 1 a quota of -1."""
    with suppress(OSError, ValueError):
        files = (
            [group / "cpu.max"]
            if (group / "cpu.max").exists()
            else [group / f"cpu.cfs_{n}_us" for n in ("quota", "period")]
        )
        limit, period = (int(word) for file in files for word in file.read_text().split())
        return limit / period if limit > 0 else inf
    return inf
