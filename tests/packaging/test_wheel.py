"""Wheels and sdists are complete, pass the index's checks, and run where they are installed, far from the checkout.

FEDBENCH_PYTHONS names further interpreters whose environments have fedbench's dependencies; `make test-pythons` makes
them for the oldest and the newest Python.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from fedbench.installation import DISTRIBUTION
from tests.packaging.sites import PROJECT, ROOT, closure, link


@dataclass(frozen=True)
class Distributed:
    """A distribution: its folder, and its packages."""

    folder: Path
    packages: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return ("pyproject.toml", "README.md", "LICENSE", *self.packages)

    @property
    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]
        return about


CORE, PAPERS = Distributed(ROOT, ("fedbench", "tune_spaces")), Distributed(ROOT / "papers", ("fedbench_papers",))
OTHERS = [os.path.abspath(path) for path in os.environ.get("FEDBENCH_PYTHONS", "").split(os.pathsep) if path]
EVERY_MODULE = """
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
import fedbench, fedbench_papers
for package in (fedbench, fedbench_papers):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        try:
            import_module(module.name) if not module.name.endswith("__main__") else None
        except ModuleNotFoundError as error:
            assert error.name in ("wandb", "matplotlib", "wandb_workspaces"), error
"""


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """The output of a command that must succeed."""
    env = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([*command], cwd=cwd, env=env | more, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(own: Distributed, source: Path, out: Path) -> Path:
    """A folder with an sdist and the wheel built from it. Beside the sources lies what does not belong in them."""
    for name in own.sources:
        copy, ignored = (shutil.copytree, {"ignore": shutil.ignore_patterns("__pycache__", "*.egg-info")})
        path = own.folder / name
        copy(path, source / name, **ignored) if path.is_dir() else shutil.copy(path, source)
    for name in ("tests/test_it.py", "results/run.json", "experiments/run.py", "docs/index.md"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=source)
    return out


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Distributed, Path]:
    make = tmp_path_factory.mktemp
    return {own: built(own, make("source"), make("dist")) for own in (CORE, PAPERS)}


@pytest.fixture(params=[CORE, PAPERS], ids=["fedbench", "papers"])
def own(request: pytest.FixtureRequest) -> Distributed:
    found: Distributed = request.param
    return found


@pytest.fixture
def dist(own: Distributed, folders: dict[Distributed, Path]) -> Path:
    return folders[own]


@pytest.fixture
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as inside:
        (name,) = [name for name in inside.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(inside.read(name))


def test_the_wheel_has_the_files_of_the_packages_and_no_others(own, wheel):
    with zipfile.ZipFile(wheel) as inside:
        packed = {name for name in inside.namelist() if ".dist-info/" not in name}
    files = {path for name in own.packages for path in (own.folder / name).rglob("*") if path.is_file()}
    assert packed == {str(path.relative_to(own.folder)) for path in files if "__pycache__" not in path.parts}


def test_the_sdist_has_them_too(dist, wheel):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as inside:
        names = {name.partition("/")[2] for name in inside.getnames()}
    with zipfile.ZipFile(wheel) as inside:
        assert {name for name in inside.namelist() if ".dist-info/" not in name} <= names
    assert {"README.md", "LICENSE", "pyproject.toml", "PKG-INFO"} <= names
    assert not {name for name in names if name.startswith(("results/", "experiments/", "docs/"))}


def test_what_the_index_shows(own, wheel):
    about = metadata(wheel)
    assert about["Name"] == own.about["name"]
    assert about["Version"] == own.about["version"] == PROJECT["version"]
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == PROJECT["requires-python"]
    assert str(about.get_payload(decode=True), "utf-8") == (own.folder / "README.md").read_text()  # type: ignore[arg-type]
    assert {*about.get_all("Provides-Extra", [])} == {*own.about.get("optional-dependencies", {})}


def test_the_papers_need_the_fedbench_that_they_were_made_with():
    assert CORE.about["name"] == DISTRIBUTION
    assert PAPERS.about["dependencies"] == [f"{DISTRIBUTION}=={CORE.about['version']}"]


def test_the_checks_of_the_index(own, dist, wheel):
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)
    names = ",".join(own.packages)
    run(sys.executable, "-m", "check_wheel_contents", "--no-config", "--toplevel", names, wheel, cwd=dist)


@pytest.fixture(scope="module", params=[sys.executable, *OTHERS])
def environment(
    request: pytest.FixtureRequest, folders: dict[Distributed, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A fresh environment with the wheels, and with what they need; of another Python with what that has."""
    folder, python = tmp_path_factory.mktemp("environment"), request.param
    run(python, "-m", "venv", "--without-pip", folder, cwd=folder)
    if python == sys.executable:
        site = link(closure(PROJECT["dependencies"]).values(), folder / "core")
    else:
        site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(f"{site}\n")
    wheels = [wheel for own in folders.values() for wheel in own.glob("*.whl")]
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    run(*pip, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", *wheels, cwd=folder)
    return folder / "bin"


@pytest.mark.night
def test_it_runs_where_it_is_installed(environment, tmp_path):
    fedbench, cache = environment / "fedbench", str(tmp_path / "cache")
    assert run(fedbench, "--version", cwd=tmp_path) == f"fedbench {PROJECT['version']}\n"
    assert {"claims", "field", "reproduce"} <= {*run(fedbench, "--help", cwd=tmp_path).split()}
    listed = run(fedbench, "methods", cwd=tmp_path, FEDBENCH_CACHE=cache)
    assert "fedper" in listed
    assert run(fedbench, "methods", cwd=tmp_path, FEDBENCH_CACHE=cache) == listed
    assert "fedbench grid --method fedcac" in run(fedbench, "demo", "--help", cwd=tmp_path)
    small = ("--rounds", "2", "--partition.clients", "4", "--hosts", "0", "--out", "made")
    run(fedbench, "run", "--method", "fedper", *small, cwd=tmp_path, FEDBENCH_CACHE=cache)
    assert (tmp_path / "made" / "report.html").stat().st_size > 10**6
    run(environment / "python", "-c", EVERY_MODULE, cwd=tmp_path)
