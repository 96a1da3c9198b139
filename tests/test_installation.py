"""Extras and names of distributions: what is missing, and who else is there, is said in one line."""

from importlib import metadata

import pytest

from fedbench import cli, installation
from fedbench.cli import doctor
from fedbench.errors import ConfigError
from fedbench.installation import DEPENDENCIES, DISTRIBUTION, EXTRAS, missing, other_fedbench, require, version
from tests.packaging.sites import PROJECT


def test_the_extras_are_those_of_the_distribution():
    extras = PROJECT["optional-dependencies"]
    assert PROJECT["name"] == DISTRIBUTION
    assert extras["all"] == [f"{DISTRIBUTION}[{','.join(EXTRAS)}]"]
    assert {*extras} == {*EXTRAS, "all", "docs", "test"}


def test_a_library_that_is_missing_is_one_line(monkeypatch):
    for needed in (*DEPENDENCIES, *EXTRAS):
        require(needed)  # the tests' environment has all
    monkeypatch.setitem(EXTRAS, "tune", {"no_such_optuna": "Optuna", "no_such_ray": "Ray", "math": "Python"})
    with pytest.raises(ConfigError) as one:
        require("tune", "use --search random")
    assert str(one.value) == (
        "Optuna and Ray are not installed: pip install 'fedbench-pfl[tune]', or use --search random"
    )
    monkeypatch.setitem(DEPENDENCIES, "ray", {"no_such_ray": "Ray"})
    with pytest.raises(ConfigError, match=r"^Ray is not installed: pip install fedbench-pfl$"):
        require("ray")


def test_the_folder_into_which_wandb_writes_is_not_wandb(monkeypatch, tmp_path):
    (tmp_path / "no_such_wandb").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(DEPENDENCIES, "wandb", {"no_such_wandb": "W&B"})
    assert missing("wandb") == ["W&B"]


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs a distribution of this name, in its metadata only."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-0.1.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.3\n")

    return install


def test_a_stranger_under_the_import_name_is_told(installed, capsys):
    line = (
        "another project, fedbench 0.1.3, is installed under the same import name: pip uninstall fedbench, then "
        "pip install --force-reinstall --no-deps fedbench-pfl"
    )
    installed("fedbench")
    assert other_fedbench() == line
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().err == f"fedbench: warning: {line}\n"
    findings = [str(finding) for finding in doctor.check_packages()]
    said, _, todo = line.partition(": ")
    assert f"wrong  fedbench       {said}: {todo}" in findings


def test_others_are_no_strangers(installed, capsys, monkeypatch):
    known = {"fedbench-pfl", "fedbench-lab"}
    installed("fedbench-lab")
    monkeypatch.setattr(metadata, "version", lambda name: "0.1.3" if name in known else _unknown(name))
    assert other_fedbench() is None
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr() == ("fedbench 0.1.3\n", "")


def test_a_checkout_that_was_not_installed(monkeypatch, capsys):
    monkeypatch.setattr(metadata, "version", _unknown)
    assert version() is None
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "fedbench unknown: it is not installed\n"
    assert str(next(doctor.check_packages())).startswith("note   fedbench       not installed as a package, Python")
    monkeypatch.undo()
    assert installation.version() == metadata.version(DISTRIBUTION)


def _unknown(name: str) -> str:
    raise metadata.PackageNotFoundError(name)
