"""The installation and the machine are checked, and every problem has a remedy."""

import sys
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
import torch

from fedbench.cli import doctor
from fedbench.errors import ConfigError
from fedbench.installation import DEPENDENCIES
from fedbench.runtime.ray import cluster


@pytest.fixture
def lines(monkeypatch, tmp_path, capsys):
    """Runs the command without starting a Ray; returns its exit code and the lines that it prints."""
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def no_ray(config):
        yield None

    monkeypatch.setattr(cluster, "connect", no_ray)
    monkeypatch.setattr(cluster, "describe_machines", lambda ray: "1 machine")

    def run(*argv):
        code = doctor.main(list(argv))
        return code, capsys.readouterr().out.splitlines()

    return run


def test_a_machine_on_which_all_is_well(lines, tmp_path):
    code, printed = lines()
    assert code == 0
    assert not any(line.startswith("wrong") for line in printed)
    assert [line[7:21].strip() for line in printed][:4] == ["fedbench", "packages", "extras", "cores"]
    assert any(line.startswith("ok     results") and str(tmp_path) in line for line in printed)
    assert any(line.startswith("ok     Ray            starts: 1 machine") for line in printed)


def test_packages_that_are_missing_or_too_old_end_it(lines, monkeypatch):
    needed = ["numpy>=999", "no-such-package>=2", "torch>=2", 'other>=1; extra == "test"', "ray>=999"]
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    code, printed = lines()
    assert code == 1
    assert printed[2] == "ok     extras         tune, plots, tensorboard, privacy, onnx"
    assert printed[3:] == [
        f"wrong  packages       numpy {metadata.version('numpy')}, >=999 is needed: pip install 'numpy>=999'",
        "wrong  packages       no-such-package missing, >=2 is needed: pip install 'no-such-package>=2'",
        f"wrong  packages       ray {metadata.version('ray')}, >=999 is needed: pip install 'ray>=999'",
    ]


def test_extras_that_are_missing_are_notes(lines, monkeypatch):
    monkeypatch.setitem(DEPENDENCIES, "ray", {"no_such_ray": "Ray"})
    monkeypatch.setitem(DEPENDENCIES, "wandb", {"no_such_wandb": "W&B"})
    code, printed = lines()
    assert code == 0
    assert printed[2:5] == [
        "ok     extras         tune, plots, tensorboard, privacy, onnx",
        "note   extras         without Ray: pip install fedbench-pfl",
        "note   extras         without W&B: pip install fedbench-pfl",
    ]
    assert not {"Ray", "W&B"} & {line[7:21].strip() for line in printed}


def test_a_cache_that_cannot_be_written(lines, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "file" / "cache"))
    code, printed = lines()
    (line,) = [line for line in printed if line.startswith("wrong")]
    assert code == 1
    assert "cache cannot be written (Not a directory): set FEDBENCH_CACHE to a folder in which you may write" in line


def test_a_ray_that_does_not_start_says_why(lines, monkeypatch):
    @contextmanager
    def broken(config):
        raise ConfigError("Ray cannot start (path too long): set RAY_TMPDIR")
        yield

    monkeypatch.setattr(cluster, "connect", broken)
    code, printed = lines()
    assert code == 1
    assert "wrong  Ray            does not start: Ray cannot start (path too long): set RAY_TMPDIR" in printed


def test_a_gpu_that_pytorch_cannot_use(lines, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "nvidia0"]))
    code, printed = lines()
    (line,) = [line for line in printed if line.startswith("wrong")]
    assert code == 1
    assert line.startswith("wrong  GPU            there is one that PyTorch cannot use: ")


def test_modules_that_every_process_compiles_are_a_note(lines, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    cached = tmp_path / "none.pyc"
    monkeypatch.setattr(doctor, "cache_from_source", lambda path: cached)
    (line,) = (line for line in lines()[1] if line[7:14] == "modules")
    assert line.startswith("note   modules        none is compiled, and PYTHONDONTWRITEBYTECODE keeps it so")
    assert line.endswith(f"python -m compileall -q {Path(torch.__file__).parents[1]}")
    cached.touch()
    assert not any(line[7:14] == "modules" for line in lines()[1])


def test_little_shared_memory_is_a_note(lines, monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_SHARED", 10**9)
    code, printed = lines()
    if not any("shared memory" in line for line in printed):
        pytest.skip("no /dev/shm on this machine")
    assert code == 0
    (line,) = [line for line in printed if line.startswith("note")]
    assert line.endswith("in a container, give it more with --shm-size 8g")


def test_it_takes_no_arguments(lines, capsys):
    assert lines("--help")[0] == 0
    assert doctor.main(["now"]) == 2
    assert "takes no arguments" in capsys.readouterr().err
