"""What Linux says of the processor, and what is said where it says nothing."""

import math
import os
import platform
from pathlib import Path

import pytest

from fedbench import processor

TWO_CORES = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC: a test
flags\t\t: fpu avx2 avx512_bf16

processor\t: 1
vendor_id\t: another
"""
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd i8mm bf16\n"


@pytest.fixture
def cpuinfo(monkeypatch):
    def say(text: str | None) -> None:
        def read(path: Path) -> str:
            if text is None:
                raise FileNotFoundError(path)
            return text

        monkeypatch.setattr(processor.Path, "read_text", read)
        processor.processor_facts.cache_clear()

    yield say
    monkeypatch.undo()
    processor.processor_facts.cache_clear()


def test_the_first_core_speaks_for_all(cpuinfo):
    cpuinfo(TWO_CORES)
    assert processor.name() == "AMD EPYC: a test"
    assert [processor.has(flag) for flag in ("bf16", "avx2", "avx512f")] == [True, True, False]


def test_other_kinds_of_processor(cpuinfo):
    cpuinfo(ARM)
    assert processor.has("bf16") is True
    assert processor.has("avx2") is False
    assert processor.name() == platform.processor()


@pytest.mark.parametrize("text", [None, ""])
def test_without_a_word_of_linux(cpuinfo, text):
    cpuinfo(text)
    assert processor.has("bf16") is None
    assert processor.name() == platform.processor()


@pytest.fixture
def cores(monkeypatch):
    """The cores of a process with such an affinity, such files of its control groups, and such variables."""

    def of(usable: int, files: dict[str, str], folder: Path, **environment: str) -> int:
        for name, text in {"cgroup": "", **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        granted = processor.quota(folder / "cgroup", folder)
        monkeypatch.setattr(processor, "quota", lambda: granted)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
        for name in processor.SLURM:
            monkeypatch.delenv(name, raising=False)
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        processor.cores.cache_clear()
        return processor.cores()

    yield of
    processor.cores.cache_clear()


V1 = "9:memory:/job\n4:cpu,cpuacct:/job/step\n0::/\n"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"cgroup": "0::/\n", "cpu.max": "max 100000\n"}, 8),
        ({"cgroup": "0::/\n", "cpu.max": "300000 100000\n"}, 3),
        ({"cgroup": "0::/\n", "cpu.max": "250000 100000\n"}, 2),
        ({"cgroup": "0::/\n", "cpu.max": "50000 100000\n"}, 1),
        ({"cgroup": "0::/user.slice/a.scope\n", "user.slice/cpu.max": "200000 100000", "cpu.max": "max 100000"}, 2),
        ({"cgroup": "0::/slurm/job\n", "cpu.max": "200000 100000\n"}, 2),  # inside a container its folder is the root
        ({"cgroup": V1, "cpu/job/step/cpu.cfs_quota_us": "-1", "cpu/job/step/cpu.cfs_period_us": "100000"}, 8),
        ({"cgroup": V1, "cpu/job/cpu.cfs_quota_us": "450000", "cpu/job/cpu.cfs_period_us": "100000"}, 4),
        ({"cgroup": V1, "memory/job/cpu.max": "100000 100000"}, 8),
        ({"cgroup": "0::/\n", "cpu.max": "1600000 100000\n"}, 8),
    ],
)
def test_the_quota_of_control_groups_bounds_the_cores(cores, tmp_path, files, count):
    assert cores(8, files, tmp_path) == count


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "8"}, 4),
        ({"SLURM_CPUS_ON_NODE": "8"}, 8),
        ({"SLURM_CPUS_PER_TASK": "256"}, 128),
        ({"SLURM_CPUS_PER_TASK": ""}, 128),
    ],
)
def test_a_slurm_job_has_its_share_of_the_machine(cores, tmp_path, environment, count):
    assert cores(128, {}, tmp_path, **environment) == count


def test_a_system_without_control_groups_has_no_quota(tmp_path):
    assert processor.quota(tmp_path / "cgroup", tmp_path) == math.inf
