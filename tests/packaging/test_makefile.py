"""What the targets of the Makefile install: the demo what runs need, the others the rest once."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS, STAMP = ".venv/.runs", ".venv/.installed"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files by which make decides what to install."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "papers/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def installed(checkout: Path, target: str) -> list[str]:
    """What a target would have pip install; nothing is done."""
    command = ["make", "--dry-run", target]
    lines = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        line.partition(" -c constraints.txt ")[2] for line in lines if " install " in line and "constraints" in line
    ]


def test_the_demo_installs_what_runs_need_and_tests_only_add(checkout):
    everything = "-e '.[test]' -e ./papers"
    assert installed(checkout, "demo") == ["-e ."]
    assert installed(checkout, "lint") == ["-e .", everything]
    (checkout / ".venv").mkdir()
    (checkout / RUNS).touch()
    assert installed(checkout, "demo") == []
    assert installed(checkout, "lint") == [everything]
    (checkout / STAMP).touch()
    assert installed(checkout, "lint") == installed(checkout, "demo") == []
    os.utime(checkout / "pyproject.toml", ns=(2**62, 2**62))
    assert installed(checkout, "lint") == ["-e .", everything]


def test_the_demo_is_the_command_of_those_who_installed_the_wheel(checkout):
    lines = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "demo"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout
    assert lines.splitlines()[-1] == ".venv/bin/fedbench demo"
    assert "-q -c" not in lines, "progress is seen"
