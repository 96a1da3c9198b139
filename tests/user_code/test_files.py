"""What is written in the modules of a user: what counts of it, and what does not."""

import sys

import pytest

from fedbench.user_code import code_of, different_files, files
from tests.user_code.conftest import FILES, write


def test_the_code_is_that_of_the_module_and_of_the_modules_beside_it_that_it_imports(own):
    assert sorted(code_of("own_net:Net").files) == [
        "own_helper.py",
        "own_net.py",
        "own_pkg/__init__.py",
        "own_pkg/deep/inner.py",
        "own_pkg/part.py",
    ]
    assert not {"own_net", "own_helper", "own_pkg"} & sys.modules.keys()  # nothing was run


@pytest.mark.parametrize("name", [name for name in FILES if name != "own_other.py"])
def test_what_the_code_does_counts_wherever_it_is_written(own, name):
    before = code_of("own_net:Net")
    write(own / name, FILES[name] + "y = 2\n")
    now = code_of("own_net:Net")
    assert now.fingerprint != before.fingerprint
    assert different_files(before.files, now.files) == [name]


def test_comments_docstrings_and_layout_do_not_count(own):
    before = code_of("own_net:Net").fingerprint
    text = "import torch,  own_helper  # both\nfrom own_pkg import (\n    part,\n)\n\nclass Net:\n    width=1\n"
    write(own / "own_net.py", text)
    write(own / "own_other.py", "x = 2\n")
    assert code_of("own_net:Net").fingerprint == before


def test_the_place_does_not_count(own, tmp_path_factory, monkeypatch):
    before, other = code_of("own_net:Net"), tmp_path_factory.mktemp("other")
    for name, text in FILES.items():
        write(other / name, text)
    monkeypatch.syspath_prepend(other)
    assert code_of("own_net:Net") == before


def test_an_installed_package_counts_by_its_version(own, monkeypatch):
    site = own / "site-packages"
    write(site / "own_timm/__init__.py", "x = 1\n")
    info = site / "Own_Timm-1.2.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: Own-Timm\nVersion: 1.2\n")
    write(info / "top_level.txt", "own_timm\n")
    write(own / "own_net.py", "import own_timm, numpy, json, fedbench.config\n")
    monkeypatch.syspath_prepend(site)
    files._distributions.cache_clear()
    assert code_of("own_timm:x").files == {"Own-Timm": "1.2"}
    assert set(code_of("own_net:x").files) == {"own_net.py", "Own-Timm"}
    assert code_of("own_net:x").files["Own-Timm"] == "1.2"
    files._distributions.cache_clear()


def test_fedbench_and_the_standard_library_are_nobodys_code():
    assert code_of("fedbench.methods.fedavg:FedAvg").files == code_of("os.path:join").files == {}


@pytest.mark.parametrize(
    "line",
    [
        "import importlib\nimportlib.import_module('own_pkg.deep.inner')",
        "from importlib import import_module\nimport_module('.deep.inner', 'own_pkg')",
        "from importlib import import_module\nimport_module('.deep.inner', package='own_pkg')",
        "__import__('own_pkg.deep.inner')",
    ],
)
def test_a_module_that_is_imported_by_a_text_counts(own, line):
    write(own / "own_net.py", f"{line}\nclass Net:\n    pass\n")
    assert "own_pkg/deep/inner.py" in code_of("own_net:Net").files
