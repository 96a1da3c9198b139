"""Modules of a user, in a folder from which they can be imported."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FILES = {
    "own_net.py": "import torch, own_helper\nfrom own_pkg import part\nclass Net:\n    '''A net.'''\n    width = 1\n",
    "own_helper.py": "def scale():\n    return 1\n",
    "own_pkg/__init__.py": "",
    "own_pkg/part.py": "def late():\n    from .deep import inner\n",
    "own_pkg/deep/inner.py": "x = 1\n",
    "own_other.py": "x = 1\n",
}


@pytest.fixture
def own(tmp_path, monkeypatch) -> Iterator[Path]:
    for name, text in FILES.items():
        write(tmp_path / name, text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is written twice within a second
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()
